//! [`Consumer::run`]: handlers that run at the same time, in one task.

use std::any::Any;
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::task::unconstrained;

use super::Consumer;
use super::backoff::Verdict;
use super::message::{Delivery, Message, Requeue};
use crate::event::Event;

/// The longest time in which handlers run one after the other before other tasks of the thread get a turn. The
/// connection may be one of them: its answer to a heartbeat must not wait for the next handler.
const TURN: Duration = Duration::from_millis(1);

/// The memory of a handler's future. It is used again for the next message, so a handler that is ready at once needs no
/// allocation.
type HandlerSlot<F> = Pin<Box<Option<F>>>;

/// A handler at work on one message.
struct Handling<F> {
    /// `None` when the handler has ended.
    slot: Option<HandlerSlot<F>>,
    delivery: Arc<Delivery>,
}

impl Consumer {
    /// Calls `handler` for each message, with up to `concurrency` messages (at least one) at the same time, until the
    /// consumer has stopped ([`Control::shutdown`](crate::Control::shutdown)) and all handlers have ended.
    ///
    /// `Ok` finishes the message. `Err` requeues the message after the automatic delay and begins or prolongs a
    /// backoff, and so does a panic (in a program that is built with `panic = "abort"`, a panic ends the program). A
    /// handler may also answer the message itself: the first answer counts. After
    /// [`disable_auto_response`](Message::disable_auto_response), the result of the handler counts for nothing.
    ///
    /// All handlers run in the task that calls `run`, so they need not be `Send`. A handler that computes or blocks for
    /// long holds up the other handlers, and on a runtime with few threads also the connections. `spawn_blocking`
    /// inside the handler avoids this. [`runtime`](crate::ConsumerBuilder::runtime) at least keeps the connections
    /// alive.
    ///
    /// Dropping the future drops the consumer: messages with unfinished handlers are requeued.
    ///
    /// ```
    /// use ringq_client::testing::MockNetwork;
    /// use ringq_client::{Consumer, Message};
    ///
    /// # async fn save(body: &[u8]) -> std::io::Result<()> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let network = MockNetwork::new();
    /// let nsqd = network.broker("nsqd-1:4150");
    /// nsqd.publish("orders", "one");
    /// let consumer = Consumer::builder("orders", "billing")
    ///     .node(nsqd.address())
    ///     .connector(network)
    ///     .connect()
    ///     .await?;
    /// let control = consumer.control();
    /// let handler = async |message: Message| {
    ///     save(message.body()).await?;
    ///     // A program calls this elsewhere, for instance on SIGTERM.
    ///     let control = control.clone();
    ///     tokio::spawn(async move { control.shutdown().await });
    ///     Ok::<(), std::io::Error>(())
    /// };
    /// consumer.run(10, handler).await;
    /// assert_eq!(nsqd.depth("orders", "billing"), (0, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<H, F, E>(mut self, concurrency: usize, handler: H)
    where
        H: Fn(Message) -> F,
        F: Future<Output = Result<(), E>>,
        E: Display,
    {
        let concurrency = concurrency.max(1);
        let mut handling: FuturesUnordered<Handling<F>> = FuturesUnordered::new();
        let mut free: Vec<HandlerSlot<F>> = Vec::new();
        // tokio's limit for the work of one task is meant for one future, and this task has one for each message. A
        // handler beyond the limit would be polled in vain. `TURN` gives other tasks their turn.
        unconstrained(poll_fn(|cx| {
            let began_at = Instant::now();
            loop {
                if began_at.elapsed() > TURN {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                if let Poll::Ready(Some(slot)) = handling.poll_next_unpin(cx) {
                    free.push(slot);
                    continue;
                }
                if handling.len() >= concurrency {
                    return Poll::Pending;
                }
                match self.poll_message(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(None) if handling.is_empty() => return Poll::Ready(()),
                    Poll::Ready(None) => return Poll::Pending,
                    Poll::Ready(Some(message)) => {
                        let slot = free.pop().unwrap_or_else(|| Box::pin(None));
                        let Some(mut begun) = begin(&handler, message, slot, &mut free) else {
                            continue;
                        };
                        match Pin::new(&mut begun).poll(cx) {
                            Poll::Ready(slot) => free.push(slot),
                            // The set polls it again, with a waker of its own.
                            Poll::Pending => handling.push(begun),
                        }
                    }
                }
            }
        }))
        .await;
    }
}

/// Calls the handler. Returns `None` if it panics.
fn begin<H, F, E>(
    handler: &H,
    message: Message,
    mut slot: HandlerSlot<F>,
    free: &mut Vec<HandlerSlot<F>>,
) -> Option<Handling<F>>
where
    H: Fn(Message) -> F,
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    let (message, delivery) = message.share();
    match catch_unwind(AssertUnwindSafe(|| handler(message))) {
        Ok(future) => {
            slot.set(Some(future));
            Some(Handling {
                slot: Some(slot),
                delivery,
            })
        }
        Err(panic) => {
            conclude(&delivery, Err::<(), _>(panic_text(&*panic)), true);
            free.push(slot);
            None
        }
    }
}

impl<F, E> Future for Handling<F>
where
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    /// The slot, for the next message.
    type Output = HandlerSlot<F>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<HandlerSlot<F>> {
        let mut slot = self.slot.take().expect("a handler ends once");
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let future = slot.as_mut().as_pin_mut();
            future.expect("a handler has a future").poll(cx)
        }));
        match polled {
            Ok(Poll::Pending) => {
                self.slot = Some(slot);
                return Poll::Pending;
            }
            Ok(Poll::Ready(result)) => conclude(&self.delivery, result, false),
            Err(panic) => conclude(&self.delivery, Err(panic_text(&*panic)), true),
        }
        // A value that the future still holds may panic in its drop, too. Then the slot is not used again.
        match catch_unwind(AssertUnwindSafe(|| slot.set(None))) {
            Ok(()) => Poll::Ready(slot),
            Err(_) => Poll::Ready(Box::pin(None)),
        }
    }
}

/// Answers a message by the result of its handler.
fn conclude<E: Display>(delivery: &Delivery, result: Result<(), E>, is_panic: bool) {
    if let Err(error) = &result {
        delivery.source.emit(|client, node| Event::HandlerFailed {
            client,
            node,
            id: delivery.id,
            error: error.to_string(),
            is_panic,
        });
    }
    if delivery.is_manual() {
        return;
    }
    match result {
        Ok(()) => delivery.finish(),
        Err(_) => delivery.requeue(Requeue::Automatic, Verdict::Failure),
    };
}

/// Returns the text of a panic.
fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("a value that is no text"))
}
