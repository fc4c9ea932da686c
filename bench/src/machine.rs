//! The machine's fingerprint, from /proc.

use std::fs;

use crate::result::Machine;

/// Reads the fingerprint; what cannot be read stays empty or zero.
#[must_use]
pub fn fingerprint() -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    Machine {
        cpu_model: field(&cpuinfo, "model name").unwrap_or_default().into(),
        cores: std::thread::available_parallelism()
            .map_or(0, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
        kernel: format!(
            "{} {} {}",
            text(uname.sysname()),
            text(uname.release()),
            text(uname.machine())
        ),
        memory_bytes: field(&meminfo, "MemTotal")
            .and_then(|value| value.strip_suffix(" kB")?.trim().parse::<u64>().ok())
            .unwrap_or(0)
            * 1024,
    }
}

/// The value behind `name:` in a file of such lines.
#[must_use]
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let of_line = |line: &'a str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    };
    text.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_cores_and_memory() {
        let machine = fingerprint();
        assert!(machine.cores > 0 && machine.memory_bytes > 0);
        assert!(machine.kernel.starts_with("Linux"));
        assert_eq!(field("a : 1\nb\t: 2 kB\n", "b"), Some("2 kB"));
        assert_eq!(field("a : 1\n", "b"), None);
    }
}
