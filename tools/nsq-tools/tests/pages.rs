//! The page docs/reference/flags-tools.md has the flags of the tools. docs/reference/tools.md says what is longer than
//! a line.

use nsq_tools::nsq_forget::NSQ_FORGET;
use nsq_tools::nsq_pubsub::NSQ_PUBSUB;
use nsq_tools::nsq_stat::NSQ_STAT;
use nsq_tools::nsq_tail::NSQ_TAIL;
use nsq_tools::nsq_to_file::NSQ_TO_FILE;
use nsq_tools::nsq_to_http::NSQ_TO_HTTP;
use nsq_tools::nsq_to_nsq::NSQ_TO_NSQ;
use nsq_tools::nsqtop::NSQTOP;
use nsq_tools::to_nsq::TO_NSQ;
use program::Program;
use test_support::tables::{of_flags, page_with_table};

/// The most characters of a flag's help.
const HELP_MAX: usize = 100;

/// The tools of NSQ 1.3.0 that this project has, too.
pub(crate) const WITH_ORIGINAL: [&Program; 6] = [
    &NSQ_STAT,
    &NSQ_TAIL,
    &NSQ_TO_FILE,
    &NSQ_TO_HTTP,
    &NSQ_TO_NSQ,
    &TO_NSQ,
];

/// All other tools.
pub(crate) const WITHOUT_ORIGINAL: [&Program; 3] = [&NSQTOP, &NSQ_PUBSUB, &NSQ_FORGET];

/// The page has a table of all flags of each program. To write the tables anew, run this test with
/// UPDATE_DOCS=1.
#[test]
fn the_page_has_every_flag() {
    test_support::pages::check("reference/flags-tools.md", |page| {
        let mut page = page.to_owned();
        for program in WITH_ORIGINAL.into_iter().chain(WITHOUT_ORIGINAL) {
            let name = program.name;
            page = page_with_table(&page, &format!("{name}'s flags"), &of_flags(program.flags));
            if !program.own_flags.is_empty() {
                let title = format!("our flags of {name}");
                page = page_with_table(&page, &title, &of_flags(program.own_flags));
            }
        }
        page
    });
}

#[test]
fn the_help_of_a_flag_is_one_short_line() {
    for program in WITH_ORIGINAL.into_iter().chain(WITHOUT_ORIGINAL) {
        for flag in program.flags.iter().chain(program.own_flags) {
            let (name, help) = (flag.name, flag.help);
            let is_short = help.chars().count() <= HELP_MAX && !help.contains('\n');
            assert!(is_short, "{} --{name}: {help}", program.name);
        }
    }
}
