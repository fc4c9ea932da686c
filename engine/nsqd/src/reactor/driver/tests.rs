use super::*;
use std::task::Wake;
use std::thread;
use std::time::Instant;

/// The calls that wait give the kernel the number of a descriptor, and pointers to a time on the stack. Here
/// threads make and drop engines all the time. A wrong number or a stale time ends a wait early, or never.
fn waits_end_by_their_own_time_or_wake_up(engine: Engine) {
    if !crate::preflight::is_usable(engine) {
        return;
    }
    let threads = [(); 4].map(|()| {
        thread::spawn(move || {
            for round in 0..100 {
                let (driver, notify) = Driver::new(engine).expect("descriptors are left");
                let is_woken = || driver.for_each_ready(|_| panic!("nothing is watched"));
                let wait = Duration::from_micros(200 + round * 30);
                let began = Instant::now();
                let mut enters = 0;
                while began.elapsed() < wait {
                    let rest = wait.saturating_sub(began.elapsed());
                    driver.enter(Some(rest)).expect("the engine works");
                    enters += 1;
                    assert!(!is_woken());
                }
                assert!(enters <= 3, "{enters} waits for {wait:?}");
                assert!(notify.announce_sleep());
                let bell = Arc::clone(&notify);
                let bell = thread::spawn(move || bell.wake());
                while !is_woken() {
                    driver.enter(None).expect("the engine works");
                }
                bell.join().expect("it only wakes");
            }
        })
    });
    for thread in threads {
        thread.join().expect("an assertion failed");
    }
}

#[test]
fn waits_of_epoll_end_by_their_own_time_or_wake_up() {
    waits_end_by_their_own_time_or_wake_up(Engine::Epoll);
}

#[cfg(target_os = "linux")]
#[test]
fn waits_of_the_ring_end_by_their_own_time_or_wake_up() {
    waits_end_by_their_own_time_or_wake_up(Engine::IoUring);
}
