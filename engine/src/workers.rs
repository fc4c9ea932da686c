//! Threads for what waits for other programs: questions to nsqlookupd and to auth servers.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// How long a thread that is not the only one waits for more to do.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// Something to be done, and its result reported.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// A bounded number of threads that take jobs in order. There are as many as there is work for, and at
/// least one; they end with the process, whatever they wait for.
#[derive(Clone)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    threads_max: usize,
    state: Mutex<State>,
    has_jobs: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Workers {
    /// Starts the first thread.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn start(name: &'static str, threads_max: usize) -> io::Result<Workers> {
        let workers = Workers {
            shared: Arc::new(Shared {
                name,
                threads_max,
                state: Mutex::default(),
                has_jobs: Condvar::new(),
            }),
        };
        workers.start_thread()?;
        Ok(workers)
    }

    /// Has a job done, after those before it. Never waits.
    pub(crate) fn give(&self, job: Job) {
        let mut state = self.shared.lock();
        state.jobs.push_back(job);
        let needs_thread = state.idle < state.jobs.len() && state.threads < self.shared.threads_max;
        drop(state);
        self.shared.has_jobs.notify_one();
        if needs_thread {
            // Without another thread those that are there do it, later.
            let _ = self.start_thread();
        }
    }

    fn start_thread(&self) -> io::Result<()> {
        self.shared.lock().threads += 1;
        let shared = self.shared.clone();
        let started = Builder::new()
            .name(self.shared.name.to_owned())
            .spawn(move || shared.run());
        if started.is_err() {
            self.shared.lock().threads -= 1;
        }
        started.map(drop)
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let is_last = state.threads == 1;
            let patience = if is_last { Duration::MAX } else { IDLE_TIME };
            let (waited, timeout) = self
                .has_jobs
                .wait_timeout(state, patience)
                .unwrap_or_else(PoisonError::into_inner);
            state = waited;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() && state.threads > 1 {
                state.threads -= 1;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn jobs_that_wait_do_not_hold_up_others_until_all_threads_wait() {
        let workers = Workers::start("test", 3).expect("a thread");
        let (done, results) = channel();
        let gates: Vec<_> = (0..3)
            .map(|index| {
                let (open, gate) = channel::<()>();
                let done = done.clone();
                workers.give(Box::new(move || {
                    gate.recv().expect("it is opened");
                    done.send(index).expect("the test listens");
                }));
                open
            })
            .collect();
        let more = done.clone();
        workers.give(Box::new(move || more.send(3).expect("the test listens")));
        // Any of the three makes room for the fourth.
        gates[1].send(()).expect("it waits");
        assert_eq!(results.recv(), Ok(1));
        assert_eq!(results.recv(), Ok(3));
        gates[2].send(()).expect("it waits");
        assert_eq!(results.recv(), Ok(2));
        gates[0].send(()).expect("it waits");
        assert_eq!(results.recv(), Ok(0));
    }
}
