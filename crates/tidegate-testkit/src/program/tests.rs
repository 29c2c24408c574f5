use super::*;

fn shell(script: &str) -> Program {
    Program::start(Command::new("sh").arg("-c").arg(script))
}

#[test]
fn lines_and_addresses_are_waited_for() {
    let program = shell("echo one; echo 'listening on http://127.0.0.1:8080 now' >&2; exec sleep 60");
    assert_eq!(program.wait_address("http://"), "127.0.0.1:8080".parse().unwrap());
    program.wait_line("one", |line| (line == "one").then_some(()));
    assert_eq!(program.printed(Stream::Out), "one\n");
}

#[test]
fn a_program_is_ended_by_signals() {
    let mut polite = shell("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done");
    polite.wait_line("ready", |line| (line == "ready").then_some(()));
    polite.terminate();
    assert_eq!(polite.wait_exit().code(), Some(3));
    let mut killed = shell("exec sleep 60");
    killed.kill();
    assert_eq!(killed.wait_exit().code(), None);
}
