//! A plain blocking client of Redis's protocol (RESP2), for what a test does beside the code it tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::wait::DEADLINE;

/// What the server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status, as in `OK`.
    Status(String),
    /// A refusal, with its code in front.
    Error(String),
    /// A whole number.
    Number(i64),
    /// A string of bytes, shown as text.
    Text(String),
    /// The answer "there is none".
    Nothing,
    /// Several answers.
    List(Vec<Reply>),
}

impl Reply {
    /// The text of a status or string.
    ///
    /// # Panics
    /// When it is something else.
    pub fn text(&self) -> &str {
        match self {
            Self::Status(text) | Self::Text(text) => text,
            other => panic!("not a text: {other:?}"),
        }
    }

    /// Whether it is the status `OK`.
    pub fn is_ok(&self) -> bool {
        *self == Self::Status("OK".to_owned())
    }

    /// The number; also one that is written as text.
    ///
    /// # Panics
    /// When it is something else.
    pub fn number(&self) -> i64 {
        match self {
            Self::Number(number) => *number,
            Self::Text(text) => text.parse().unwrap_or_else(|_| panic!("not a number: {text:?}")),
            other => panic!("not a number: {other:?}"),
        }
    }

    /// The answers of a list.
    ///
    /// # Panics
    /// When it is something else.
    pub fn list(&self) -> &[Reply] {
        match self {
            Self::List(replies) => replies,
            other => panic!("not a list: {other:?}"),
        }
    }
}

trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

/// A connection on which commands are run in order.
pub struct Session {
    stream: BufReader<Box<dyn Stream>>,
}

impl Session {
    /// Opens one to a server that asks for no password.
    ///
    /// # Panics
    /// When nobody listens there.
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, DEADLINE)
            .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
        stream.set_nodelay(true).expect("delays can be turned off");
        Self { stream: BufReader::new(Box::new(stream)) }
    }

    pub(super) fn open_unix(path: &Path, user: &str) -> std::io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        let mut session = Self { stream: BufReader::new(Box::new(stream)) };
        // The user needs no password, but the command wants one.
        let reply = session.try_command(&["AUTH", user, "any"])?;
        assert!(reply.is_ok(), "{reply:?}");
        Ok(session)
    }

    /// Runs a command and waits for its answer.
    ///
    /// # Panics
    /// When the connection breaks, or no answer comes within [`DEADLINE`].
    pub fn command(&mut self, words: &[&str]) -> Reply {
        self.try_command(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// As [`Self::command`], with the fault of the connection.
    pub fn try_command(&mut self, words: &[&str]) -> std::io::Result<Reply> {
        let mut request = Vec::new();
        write!(request, "*{}\r\n", words.len())?;
        for word in words {
            write!(request, "${}\r\n{word}\r\n", word.len())?;
        }
        self.stream.get_mut().write_all(&request)?;
        self.reply()
    }

    fn reply(&mut self) -> std::io::Result<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let line = line.trim_end();
        let invalid = || std::io::Error::new(std::io::ErrorKind::InvalidData, format!("not RESP: {line:?}"));
        let (kind, rest) = line.split_at_checked(1).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        let number = || rest.parse::<i64>().map_err(|_| invalid());
        Ok(match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Reply::Nothing,
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes)?;
                    Reply::Text(String::from_utf8_lossy(&bytes[..length]).into_owned())
                }
            },
            "*" => match usize::try_from(number()?) {
                Err(_) => Reply::Nothing,
                Ok(length) => Reply::List((0..length).map(|_| self.reply()).collect::<Result<_, _>>()?),
            },
            _ => return Err(invalid()),
        })
    }
}
