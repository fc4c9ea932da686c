use super::*;

#[test]
fn a_message_is_done_when_its_whole_line_has_left() {
    let mut lines = Lines::new();
    lines.push(b"ab", 1);
    lines.push_text(b"heart");
    lines.push(b"", 2);
    lines.push(b"cd", 3);
    assert_eq!(lines.waiting(), b"ab\nheart\n\ncd\n");
    let mut taken = Vec::new();
    for count in [2, 1, 6, 1, 2] {
        taken.push(lines.take(count).collect::<Vec<_>>());
    }
    assert_eq!(taken, [vec![], vec![1], vec![], vec![2], vec![]]);
    assert_eq!(lines.waiting(), b"\n");
    lines.push(b"ef", 4);
    assert_eq!(
        lines.unwritten().collect::<Vec<_>>(),
        [(3, true), (4, false)]
    );
}

#[test]
fn the_memory_of_a_large_message_is_given_back() {
    let mut lines = Lines::new();
    lines.push(&vec![b'x'; 10 << 20], ());
    assert!(lines.is_full());
    let all = lines.waiting().len();
    assert_eq!(lines.take(all).count(), 1);
    assert!(lines.waiting().is_empty() && !lines.is_full());
    assert!(lines.bytes.capacity() <= 2 * BYTES_MAX);
    lines.push(b"y", ());
    assert_eq!(lines.waiting(), b"y\n");
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn one_nsqd_of_several_is_enough() {
    let mut reach = Reach::new(&Sources::Nsqds(owned(&["a:1", "b:1"])));
    assert_eq!(reach.learn(News::ConnectFailed("a:1".to_owned())), None);
    assert_eq!(reach.learn(News::ConnectFailed("a:1".to_owned())), None);
    assert_eq!(reach.learn(News::Connected), Some(Decision::Reached));
}

#[test]
fn nothing_is_left_when_all_have_failed() {
    let mut reach = Reach::new(&Sources::Nsqds(owned(&["a:1"])));
    let failed = reach.learn(News::ConnectFailed("a:1".to_owned()));
    assert_eq!(failed, Some(Decision::Unreachable));
    let mut reach = Reach::new(&Sources::Lookupds(owned(&["l:1", "m:1"])));
    assert_eq!(reach.learn(News::LookupFailed), None);
    assert_eq!(reach.learn(News::Discovered("a:1".to_owned())), None);
    assert_eq!(reach.learn(News::LookupFailed), None);
    let failed = reach.learn(News::ConnectFailed("a:1".to_owned()));
    assert_eq!(failed, Some(Decision::Unreachable));
}
