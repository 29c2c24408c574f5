use std::io::ErrorKind;

use super::*;
use crate::DEADLINE;
use crate::wait::wait_until;

/// Long enough to see that nothing comes, and to tell a delay from none.
const PAUSE: Duration = Duration::from_millis(60);

/// Answers each byte with itself, on every connection.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut block = [0; 64];
                while let Ok(read @ 1..) = (&stream).read(&mut block) {
                    if (&stream).write_all(&block[..read]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

fn ask(mut stream: &TcpStream, byte: u8) -> std::io::Result<u8> {
    stream.write_all(&[byte])?;
    let mut answer = [0];
    stream.read_exact(&mut answer).map(|()| answer[0])
}

fn is_reset(result: &std::io::Result<u8>) -> bool {
    result
        .as_ref()
        .is_err_and(|error| matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe))
}

#[test]
fn what_passes_is_counted() {
    let proxy = Proxy::start(echo());
    let (one, other) = (connect(&proxy), connect(&proxy));
    assert_eq!((ask(&one, 1).unwrap(), ask(&other, 2).unwrap()), (1, 2));
    assert_eq!((proxy.connections(), proxy.open_connections()), (2, 2));
    // What arrives may be there before it is counted.
    wait_until("four bytes", || (proxy.bytes_up(), proxy.bytes_down()) == (2, 2));
    drop(one);
    wait_until("one connection", || proxy.open_connections() == 1);
}

#[test]
fn a_cut_resets_old_and_new_connections() {
    let proxy = Proxy::start(echo());
    let stream = connect(&proxy);
    ask(&stream, 1).unwrap();
    proxy.set(Mode::Cut);
    let mut block = [0];
    let read = (&stream).read(&mut block).map(|_| 0);
    assert!(is_reset(&read), "{read:?}");
    let asked = ask(&connect(&proxy), 1);
    assert!(is_reset(&asked), "{asked:?}");
    proxy.set(Mode::Pass);
    assert_eq!(ask(&connect(&proxy), 3).unwrap(), 3);
}

#[test]
fn cut_replies_let_the_request_through() {
    let proxy = Proxy::start(echo());
    let stream = connect(&proxy);
    proxy.set(Mode::CutReplies);
    let asked = ask(&stream, 1);
    assert!(is_reset(&asked), "{asked:?}");
    assert_eq!((proxy.bytes_up(), proxy.bytes_down()), (1, 0));
}

#[test]
fn a_black_hole_holds_everything_until_it_closes() {
    let proxy = Proxy::start(echo());
    let stream = connect(&proxy);
    ask(&stream, 1).unwrap();
    proxy.set(Mode::BlackHole);
    stream.set_read_timeout(Some(PAUSE)).unwrap();
    let asked = ask(&stream, 2);
    assert!(asked.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{asked:?}");
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    proxy.set(Mode::Pass);
    let mut answer = [0];
    (&stream).read_exact(&mut answer).unwrap();
    assert_eq!(answer, [2]);
}

#[test]
fn a_delay_is_added_once_to_each_request() {
    let proxy = Proxy::start(echo());
    let stream = connect(&proxy);
    proxy.set(Mode::Delay(PAUSE));
    let due = Deadline::after(PAUSE);
    assert_eq!(ask(&stream, 1).unwrap(), 1);
    assert!(due.passed());
}
