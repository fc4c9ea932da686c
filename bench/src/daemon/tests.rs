use super::*;

#[test]
fn a_command_must_say_where_to_listen() {
    for text in ["", "nsqd", "nsqd 'open {tcp}"] {
        assert!(DaemonCommand::new(text).is_err(), "{text}");
    }
    let command = DaemonCommand::new("nsqd '--a b' --tcp-address={tcp}").unwrap();
    assert_eq!(command.words, ["nsqd", "--a b", "--tcp-address={tcp}"]);
}

#[test]
fn a_daemon_that_ends_at_once_shows_its_log() {
    let command = DaemonCommand::new("sh -c 'echo no disk for {tcp}; exit 3'").unwrap();
    let error = RunningDaemon::start(&command, &std::env::temp_dir()).unwrap_err();
    assert!(error.contains("no disk for 127.0.0.1:"), "{error}");
}
