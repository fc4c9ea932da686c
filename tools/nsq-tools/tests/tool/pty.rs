//! A program in a pseudo-terminal, and the screen that its output draws.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, Winsize};
use test_support::daemon::wait_for_end;
use test_support::{TIMEOUT, wait_until};

const COLUMNS: NonZero<u16> = NonZero::new(80).expect("not 0");
const ROWS: NonZero<u16> = NonZero::new(24).expect("not 0");

/// A program in a terminal of 80 columns and 24 rows. A drop kills the program.
pub struct Pty {
    pub child: Child,
    keys: File,
    /// The program's end of the terminal stays open, so that its settings can be read after the end.
    terminal: Option<OwnedFd>,
    screen: Arc<Mutex<vt100::Parser>>,
    /// It ends behind the last byte of the output, when nobody has the program's end of the terminal open any more.
    reader: JoinHandle<()>,
}

impl Pty {
    pub fn start(command: &mut Command) -> Pty {
        // Programs that other tests start have no end of this terminal.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let controller = rustix::pty::openpt(flags).unwrap();
        rustix::pty::grantpt(&controller).unwrap();
        rustix::pty::unlockpt(&controller).unwrap();
        let name = rustix::pty::ptsname(&controller, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open(&name, flags, Mode::empty()).unwrap();
        let size = Winsize {
            ws_row: ROWS.get(),
            ws_col: COLUMNS.get(),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(&terminal, size).unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let child = command
            .env("TERM", "xterm-256color")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        // The command would keep its ends open.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let keys = File::from(controller);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let reader = std::thread::spawn({
            let (mut output, screen) = (keys.try_clone().unwrap(), Arc::clone(&screen));
            move || {
                let mut bytes = [0; 4096];
                // The read fails when every end of the terminal is closed.
                while let Ok(count @ 1..) = output.read(&mut bytes) {
                    screen.lock().process(&bytes[..count]);
                }
            }
        });
        Pty {
            child,
            keys,
            terminal: Some(terminal),
            screen,
            reader,
        }
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Removes the filter. A byte that follows escape at once would make another key of both.
    #[track_caller]
    pub fn press_escape(&mut self) {
        self.press("\x1b");
        let has_no_filter = || !self.text().contains("filter: ");
        assert!(wait_until(TIMEOUT, has_no_filter), "{}", self.text());
    }

    /// Returns the text on the screen.
    pub fn text(&self) -> String {
        self.screen.lock().screen().contents()
    }

    /// Waits until the screen has these texts. Panics with the screen if it does not get them.
    #[track_caller]
    pub fn wait_for(&self, texts: &[&str]) {
        let has_all = || {
            let screen = self.text();
            texts.iter().all(|text| screen.contains(text))
        };
        assert!(
            wait_until(TIMEOUT, has_all),
            "no {texts:?} in\n{}",
            self.text()
        );
    }

    /// Returns true if the program has put the terminal into raw mode.
    pub fn is_raw(&self) -> bool {
        let terminal = self.terminal.as_ref().expect("it is open until the end");
        let settings = rustix::termios::tcgetattr(terminal).unwrap();
        !settings.local_modes.contains(LocalModes::ICANON)
    }

    /// Returns true if the screen is the one that programs draw on, and not the one with the shell.
    pub fn is_alternate_screen(&self) -> bool {
        self.screen.lock().screen().alternate_screen()
    }

    /// Returns true if the caret is hidden.
    pub fn hides_caret(&self) -> bool {
        self.screen.lock().screen().hide_cursor()
    }

    /// Waits for the end of the program and of its output, and checks that the terminal is as it was.
    #[track_caller]
    pub fn wait(mut self) -> (ExitStatus, String) {
        let status = wait_for_end(&mut self.child);
        assert!(!self.is_raw(), "the terminal is not restored");
        self.terminal = None;
        let is_read = || self.reader.is_finished();
        assert!(wait_until(TIMEOUT, is_read), "the output has no end");
        assert!(
            !self.is_alternate_screen() && !self.hides_caret(),
            "the screen is not restored"
        );
        let text = self.text();
        (status, text)
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        // Both calls fail only if the process has been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
