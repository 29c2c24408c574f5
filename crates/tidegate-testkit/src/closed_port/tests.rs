use std::io::ErrorKind;
use std::net::TcpStream;

use super::*;
use crate::request;

#[test]
fn a_closed_port_refuses_until_it_is_opened() {
    let port = ClosedPort::take();
    let addr = port.addr();
    for _ in 0..2 {
        assert_eq!(TcpStream::connect(addr).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
    let origin = port.open();
    assert_eq!(origin.addr(), addr);
    assert_eq!(request(addr, "GET", "/", &[], b"").text(), "ok");
}
