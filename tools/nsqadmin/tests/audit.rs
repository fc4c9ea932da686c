//! The audit lines of the log: they do not depend on the level of the log.

use crate::support::Admin;
use test_support::daemon::Daemon;

/// An act that succeeded had no line at `warn`, and no act had one at `error`. An admin could switch the lines off.
#[test]
fn an_act_has_its_line_at_every_log_level() {
    let lookupd = Daemon::nsqlookupd(&[]);
    for level in ["warn", "error", "fatal"] {
        let admin = Admin::start_at(&[&lookupd], &["--live-interval=0", "--admin-user=carol"]);
        let ask = |method: &str, target: &str, user: &str, body: &str| {
            let header = format!("X-Forwarded-User: {user}");
            admin.ask(method, target, &[&header], body).status
        };
        assert_eq!(ask("PUT", "/config/log_level", "carol", level), 200);
        let topic = r#"{"topic":"t"}"#;
        assert_eq!(ask("POST", "/api/topics", "carol", topic), 200);
        assert_eq!(ask("DELETE", "/api/topics/nope", "carol", ""), 404);
        assert_eq!(ask("DELETE", "/api/topics/t", "eve", ""), 403);
        for [begin, end] in test_support::rows(
            r#"INFO: AUDIT: put_config log_level by user "carol" (127. | ): done
             INFO: AUDIT: create_topic t by user "carol" (127.       | ): done
             WARNING: AUDIT: delete_topic nope by user "carol" (127. | ): failed - TOPIC_NOT_FOUND
             WARNING: AUDIT: delete t by user "eve" (127.            | ): refused - FORBIDDEN"#,
        ) {
            let line = admin.wait_for_log(begin);
            assert!(line.contains(end), "{level}: {line}");
        }
        // The level counts for other lines.
        let log = admin.log();
        assert!(!log.contains("/topic/create"), "{level}: {log}");
    }
}
