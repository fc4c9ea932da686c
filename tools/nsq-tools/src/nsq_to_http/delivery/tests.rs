use super::*;

#[test]
fn a_message_is_remembered_until_it_comes_again() {
    let mut accepted = Accepted::new(10);
    assert!(accepted.take(&"a").is_empty());
    accepted.put("a", vec![0, 2]);
    accepted.put("b", vec![1]);
    accepted.put("c", Vec::new());
    assert_eq!(accepted.take(&"a"), [0, 2]);
    assert!(accepted.take(&"a").is_empty());
    assert_eq!(accepted.take(&"b"), [1]);
    assert_eq!((accepted.order.len(), accepted.places.len()), (0, 0));
}

#[test]
fn the_oldest_message_is_forgotten() {
    let mut accepted = Accepted::new(2);
    accepted.put("a", vec![0]);
    accepted.put("b", vec![1]);
    accepted.put("a", vec![2]);
    accepted.put("c", vec![3]);
    assert!(accepted.take(&"a").is_empty());
    assert_eq!(accepted.take(&"b"), [1]);
    assert_eq!(accepted.take(&"c"), [3]);
}
