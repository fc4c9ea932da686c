//! [`ThreadPool`]: threads for jobs that wait for other programs: questions to nsqlookupd and to auth servers.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::Builder;

/// Something to be done, and its result reported.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The bounds of a group of threads and its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Jobs that are done at the same time.
    pub(crate) threads_max: usize,
    /// Jobs that wait for a thread.
    pub(crate) waiting_max: usize,
    /// Bytes of all jobs, waiting or being done. A job that comes alone may have more.
    pub(crate) bytes_max: usize,
}

/// The queue is full, or its jobs have too many bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// A bounded number of threads that take jobs in order. There are as many as there was work for at the same time, and at
/// least one. They end with the process, whatever they wait for.
#[derive(Clone)]
pub(crate) struct ThreadPool {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    bounds: Bounds,
    state: Mutex<State>,
    has_jobs: Condvar,
}

#[derive(Default)]
struct State {
    /// The jobs that wait, each with its bytes.
    waiting: VecDeque<(Job, usize)>,
    /// Bytes of the jobs that wait or are being done.
    bytes: usize,
    /// Threads that are there or being started.
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
}

impl ThreadPool {
    /// Starts the first thread.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn start(name: &'static str, bounds: Bounds) -> io::Result<ThreadPool> {
        let pool = ThreadPool {
            shared: Arc::new(Shared {
                name,
                bounds,
                state: Mutex::default(),
                has_jobs: Condvar::new(),
            }),
        };
        pool.shared.state.lock().threads = 1;
        pool.start_thread()?;
        Ok(pool)
    }

    /// Has a job done, after those before it. `bytes` is what the job counts for in
    /// [`Bounds::bytes_max`]. Never waits.
    ///
    /// # Errors
    /// The bounds are reached; the job is dropped.
    pub(crate) fn give(&self, bytes: usize, job: Job) -> Result<(), Full> {
        let bounds = &self.shared.bounds;
        let mut state = self.shared.state.lock();
        let is_alone = bytes == 0 || state.bytes == 0;
        let has_room = is_alone || state.bytes.saturating_add(bytes) <= bounds.bytes_max;
        if state.waiting.len() >= bounds.waiting_max || !has_room {
            return Err(Full);
        }
        state.bytes += bytes;
        state.waiting.push_back((job, bytes));
        // The thread is counted at once, so that another caller of `give` at the same moment sees it.
        let needs_thread = state.idle < state.waiting.len() && state.threads < bounds.threads_max;
        state.threads += usize::from(needs_thread);
        drop(state);
        self.shared.has_jobs.notify_one();
        if needs_thread {
            // Without another thread those that are there do it, later.
            let _ = self.start_thread();
        }
        Ok(())
    }

    /// Starts a thread that is counted already.
    fn start_thread(&self) -> io::Result<()> {
        let shared = self.shared.clone();
        let started = Builder::new()
            .name(self.shared.name.to_owned())
            .spawn(move || shared.run());
        if started.is_err() {
            self.shared.state.lock().threads -= 1;
        }
        started.map(drop)
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some((job, bytes)) = state.waiting.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
                state.bytes -= bytes;
                continue;
            }
            state.idle += 1;
            self.has_jobs.wait(&mut state);
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::scope;
    use std::time::Duration;

    fn pool(threads_max: usize, waiting_max: usize, bytes_max: usize) -> ThreadPool {
        let bounds = Bounds {
            threads_max,
            waiting_max,
            bytes_max,
        };
        ThreadPool::start("test", bounds).expect("a thread")
    }

    /// A job that says that it has begun, and waits until it may end.
    fn gated(begun: &Sender<u32>, name: u32) -> (Sender<()>, Job) {
        let (open, gate) = channel::<()>();
        let begun = begun.clone();
        let job = Box::new(move || {
            begun.send(name).expect("the test listens");
            gate.recv().expect("it is opened");
        });
        (open, job)
    }

    fn expect(begun: &Receiver<u32>, name: u32) {
        assert_eq!(begun.recv_timeout(Duration::from_secs(60)), Ok(name));
    }

    #[test]
    fn jobs_that_wait_do_not_hold_up_others_until_all_threads_wait() {
        let pool = pool(3, 10, 0);
        let (done, results) = channel();
        let gates: Vec<_> = (0..3)
            .map(|index| {
                let (open, gate) = channel::<()>();
                let done = done.clone();
                let job = Box::new(move || {
                    gate.recv().expect("it is opened");
                    done.send(index).expect("the test listens");
                });
                pool.give(0, job).expect("there is room");
                open
            })
            .collect();
        let more = done.clone();
        let job = Box::new(move || more.send(3).expect("the test listens"));
        pool.give(0, job).expect("there is room");
        // Any of the three makes room for the fourth.
        gates[1].send(()).expect("it waits");
        assert_eq!(results.recv(), Ok(1));
        assert_eq!(results.recv(), Ok(3));
        gates[2].send(()).expect("it waits");
        assert_eq!(results.recv(), Ok(2));
        gates[0].send(()).expect("it waits");
        assert_eq!(results.recv(), Ok(0));
    }

    /// Several jobs that are given at the same moment: each was taken for the last job that needs a thread.
    #[test]
    fn threads_stay_within_their_bound_whoever_gives_at_the_same_time() {
        const GIVERS: usize = 8;
        for _ in 0..100 {
            let pool = pool(2, GIVERS, 0);
            let barrier = Barrier::new(GIVERS);
            let gates: Vec<Sender<()>> = scope(|scope| {
                let givers: Vec<_> = (0..GIVERS)
                    .map(|_| {
                        let (open, gate) = channel::<()>();
                        // The job ends when the gate is dropped.
                        let job = Box::new(move || {
                            let _ = gate.recv();
                        });
                        let (pool, barrier) = (&pool, &barrier);
                        scope.spawn(move || {
                            barrier.wait();
                            pool.give(0, job).expect("there is room");
                            open
                        })
                    })
                    .collect();
                let given = givers.into_iter().map(|giver| giver.join().expect("given"));
                given.collect()
            });
            let threads = pool.shared.state.lock().threads;
            assert!(threads <= 2, "{threads} threads");
            drop(gates);
        }
    }

    #[test]
    fn jobs_beyond_the_bounds_are_refused() {
        let pool = pool(1, 2, 100);
        let (sender, begun) = channel();
        let give = |name, bytes| {
            let (open, job) = gated(&sender, name);
            pool.give(bytes, job).map(|()| open)
        };
        // Alone, a job may be larger than all of them.
        let first = give(1, 1000).expect("there is room");
        expect(&begun, 1);
        assert_eq!(give(2, 1).err(), Some(Full), "the first is not done yet");
        let second = give(2, 0).expect("it weighs nothing");
        let third = give(3, 0).expect("it weighs nothing");
        assert_eq!(give(4, 0).err(), Some(Full), "two wait");
        first.send(()).expect("it waits");
        expect(&begun, 2);
        let heavy = give(4, 60).expect("the first is done");
        second.send(()).expect("it waits");
        expect(&begun, 3);
        assert_eq!(give(5, 60).err(), Some(Full));
        let light = give(5, 40).expect("there is room");
        for (gate, next) in [(third, 4), (heavy, 5)] {
            gate.send(()).expect("it waits");
            expect(&begun, next);
        }
        light.send(()).expect("it waits");
        // What has left weighs nothing. Its thread says so a little later.
        let last = loop {
            if let Ok(last) = give(6, 1000) {
                break last;
            }
            std::thread::yield_now();
        };
        expect(&begun, 6);
        last.send(()).expect("it waits");
    }
}
