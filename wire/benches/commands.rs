//! One benchmark per command, and the message id both ways.

fn main() {
    divan::main();
}
