use super::*;

/// Returns the number of publishes of the only node.
fn one_node(unanswered: &[Unanswered]) -> usize {
    assert_eq!(unanswered.len(), 1);
    unanswered[0].publishes
}

/// The counts of a node began anew, and a flush that went on missed the publishes after this.
#[test]
fn counts_stay_while_a_flush_goes_on_and_no_longer() {
    let account = Account {
        unconfirmed: Arc::default(),
        node: "a:1".parse().unwrap(),
    };
    let unconfirmed = &account.unconfirmed;
    let reason = Arc::new(ConnectionError::Closed);
    drop(account.begin(&reason));
    let (first, second) = (unconfirmed.mark(), unconfirmed.mark());
    account.begin(&reason).settle();
    assert_eq!(one_node(&unconfirmed.returning_since(&first)), 1);
    assert_eq!(one_node(&unconfirmed.tell_forgotten(first)), 1);
    account.begin(&reason).settle();
    drop(account.begin(&reason));
    assert_eq!(one_node(&unconfirmed.returning_since(&second)), 3);
    assert_eq!(one_node(&unconfirmed.tell_forgotten(second)), 2);
    let third = unconfirmed.mark();
    assert!(unconfirmed.returning_since(&third).is_empty());
    assert!(unconfirmed.tell_forgotten(third).is_empty());
}
