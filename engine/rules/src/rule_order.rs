//! [`RuleOrderError`]: a rule that never counts, because an earlier rule of its list always comes first.

/// The reason why a rule never counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleOrderError {
    /// The rule that comes first.
    pub earlier: String,
    /// The rule that never counts.
    pub later: String,
    /// The plural of what rules are chosen for, such as "topics".
    pub chosen_for: &'static str,
}

impl std::fmt::Display for RuleOrderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RuleOrderError {
            earlier,
            later,
            chosen_for,
        } = self;
        if earlier == later {
            return write!(
                f,
                "there are two rules {later}, and only the first one counts; leave one of them out"
            );
        }
        write!(
            f,
            "the rule {later} never counts, because the first rule that fits counts, and {earlier} fits all its \
             {chosen_for}; put {later} before {earlier}"
        )
    }
}

impl std::error::Error for RuleOrderError {}
