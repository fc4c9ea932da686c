//! Answers that are too long.

use super::*;

fn long_answer(nodes: usize) -> String {
    let node = |number| format!(r#"{{"broadcast_address":"h{number}","tcp_port":1}}"#);
    let nodes: Vec<String> = (0..nodes).map(node).collect();
    format!(r#"{{"channels":["c"],"producers":[{}]}}"#, nodes.join(","))
}

#[tokio::test]
async fn nodes_beyond_the_limit_are_counted_and_not_kept() {
    let found = ask(answer("200 OK", CURRENT, &long_answer(10_003))).await;
    let found = found.unwrap().unwrap();
    assert_eq!(found.producers.len(), 10_000);
    assert_eq!(found.ignored, 3);
    let found = ask(answer("200 OK", CURRENT, &long_answer(10_000))).await;
    assert_eq!(found.unwrap().unwrap().ignored, 0);
}
