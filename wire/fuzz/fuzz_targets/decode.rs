//! Checks that any bytes, cut anywhere, decode like the same bytes in one piece, and that nothing
//! panics.
//!
//! The first four bytes of the input choose the state of the connection. The next ones say where to
//! cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::command::{Batch, Command};
use wire::decode::{ClientState, Context, Decoded, Decoder};
use wire::error::quote;
use wire::identify::{ClientSettings, IdentifyRequest, ServerSettings, negotiate};
use wire::limits::Limits;

fuzz_target!(|data: &[u8]| {
    let Some((&[state, flags, cut, step], input)) = data.split_first_chunk() else {
        return;
    };
    let limits = Limits {
        message_bytes_max: 300,
        body_bytes_max: 400,
        ..Limits::default()
    };
    let state = match state % 3 {
        0 => ClientState::Init,
        1 => ClientState::Subscribed,
        _ => ClientState::Closing,
    };
    let tls_missing = flags & 2 != 0;
    let context = Context {
        state,
        heartbeats: flags & 1 == 0,
        tls_missing,
        req_uncounted: flags & 4 != 0,
        has_numbers: flags & 8 != 0,
        limits: &limits,
    };

    let whole = run([input], context);
    let (front, back) = input.split_at(usize::from(cut).min(input.len()));
    assert_eq!(run([front, back], context), whole, "cut at {cut}");
    let step = usize::from(step).max(1);
    assert_eq!(
        run(input.chunks(step), context),
        whole,
        "every {step} bytes"
    );

    look_around(input, &limits);
});

/// Returns, as text, what a connection does with its input. Like a connection, waits for the bytes
/// that `NeedMore` asks for.
fn run<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, mut context: Context<'_>) -> Vec<String> {
    let (mut buffer, mut decoder, mut needs) = (Vec::new(), Decoder::default(), 0);
    let mut seen = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while buffer.len() >= needs {
            match decoder.decode(&buffer, &context) {
                Decoded::NeedMore(more) => {
                    assert!(more > buffer.len(), "asks for what is there");
                    needs = more;
                }
                Decoded::Command { command, consumed } => {
                    context.state = match command {
                        Command::Sub { .. } => ClientState::Subscribed,
                        Command::Cls => ClientState::Closing,
                        _ => context.state,
                    };
                    seen.push(format!("{command:?}"));
                    buffer.drain(..consumed);
                    needs = 0;
                }
                over => {
                    seen.push(format!("{over:?}"));
                    return seen;
                }
            }
        }
    }
    seen.push(format!("{:?}", decoder.finish(&buffer, &context)));
    seen
}

/// Runs all other functions that take bytes from outside.
fn look_around(input: &[u8], limits: &Limits) {
    if let Ok(batch) = Batch::parse_binary(input, limits) {
        assert_eq!(
            batch.iter().map(|body| body.len() as u64).sum::<u64>(),
            batch.body_bytes()
        );
        assert_eq!(
            Batch::from_packed(batch.count(), batch.packed()),
            Some(batch)
        );
    }
    if let Ok(request) = IdentifyRequest::decode(input) {
        let server = ServerSettings::default();
        let _ = negotiate(&request, &server, &mut ClientSettings::from_server(&server));
    }
    let _ = wire::encode::decode_frame(input);
    let _ = wire::frame::Message::parse(input);
    let quoted = quote(input);
    assert!(quoted.len() >= 2 && !quoted.contains('\n'));
}
