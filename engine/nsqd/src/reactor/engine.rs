//! [`Engine`]: the ways to wait for sockets, by name.

/// A way to learn which of a shard's sockets are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// io_uring, of Linux 5.11 and newer.
    #[cfg(target_os = "linux")]
    IoUring,
    /// epoll; kqueue on BSD and macOS.
    Epoll,
    /// glommio, which drives io_uring in its own way.
    #[cfg(feature = "glommio")]
    Glommio,
}

impl Engine {
    /// All engines of this program, the best first.
    pub const ALL: &[Engine] = &[
        #[cfg(target_os = "linux")]
        Engine::IoUring,
        Engine::Epoll,
        #[cfg(feature = "glommio")]
        Engine::Glommio,
    ];

    /// The name, as `--io` takes it.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_os = "linux")]
            Engine::IoUring => "io_uring",
            Engine::Epoll => "epoll",
            #[cfg(feature = "glommio")]
            Engine::Glommio => "glommio",
        }
    }

    /// Returns whether this is our own ring.
    pub(crate) fn is_io_uring(self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Engine::IoUring => true,
            _ => false,
        }
    }

    /// Returns the cost of this engine compared with io_uring, as a clause for messages.
    pub(crate) fn cost_text(self) -> &'static str {
        match self {
            #[cfg(target_os = "linux")]
            Engine::IoUring => "it costs nothing more",
            #[cfg(feature = "glommio")]
            Engine::Glommio => "it takes more processor time per message",
            Engine::Epoll => {
                "it takes more processor time for many small requests, and no more in other measured loads"
            }
        }
    }

    /// The engine of this name.
    pub fn named(name: &str) -> Option<Engine> {
        let mut all = Engine::ALL.iter().copied();
        all.find(|engine| engine.name() == name)
    }
}
