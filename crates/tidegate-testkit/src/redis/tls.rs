//! An authority of the test's own, and a certificate for the loopback, by the `openssl` command.

use std::path::Path;
use std::process::Command;

pub(super) const CA: &str = "ca.pem";
pub(super) const CERTIFICATE: &str = "server.pem";
pub(super) const KEY: &str = "server.key";

/// Certificates in PEM. One certificate serves both ends: a server may ask its client for it.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Of the authority that signed the certificate.
    pub ca: String,
    /// For `127.0.0.1` and `localhost`.
    pub certificate: String,
    /// The certificate's private key.
    pub key: String,
}

impl Tls {
    pub(super) fn make(folder: &Path) -> Self {
        let new_key = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout";
        let names = "subjectAltName=IP:127.0.0.1,DNS:localhost\n";
        std::fs::write(folder.join("names.ext"), names).expect("a file of names");
        openssl(folder, &format!("{new_key} ca.key -x509 -days 2 -subj /CN=test-authority -out {CA}"));
        openssl(folder, &format!("{new_key} {KEY} -subj /CN=localhost -out server.csr"));
        openssl(
            folder,
            &format!(
                "x509 -req -in server.csr -CA {CA} -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile names.ext -out {CERTIFICATE}"
            ),
        );
        let read = |name| std::fs::read_to_string(folder.join(name)).expect("a file that openssl wrote");
        Self { ca: read(CA), certificate: read(CERTIFICATE), key: read(KEY) }
    }
}

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    command.args(arguments.split_ascii_whitespace()).current_dir(folder);
    let output = command.output().unwrap_or_else(|error| panic!("cannot start openssl: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {arguments}: {said}");
}
