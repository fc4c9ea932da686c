//! The machine's fingerprint, from /proc.

pub mod process;

use std::fs;

use crate::result::Machine;

/// Reads the fingerprint; what cannot be read stays empty or zero.
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

/// The time of this machine's processors since the machine was started, in ticks of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTicks {
    /// All ticks, idle ones as well.
    pub all: u64,
    /// Ticks in which this virtual machine wanted to run and its host did not let it.
    pub stolen: u64,
}

impl ProcessorTicks {
    /// Reads the ticks up to now; `None` where the system does not say.
    pub fn now() -> Option<ProcessorTicks> {
        ProcessorTicks::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses the first line of /proc/stat, see proc_stat(5): user, nice, system, idle, iowait, irq, softirq and
    /// steal. The columns behind these, for guests, are contained in user and nice.
    fn parse(stat: &str) -> Option<ProcessorTicks> {
        let numbers = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = numbers
            .split_whitespace()
            .take(8)
            .map_while(|number| number.parse().ok())
            .collect();
        Some(ProcessorTicks {
            all: ticks.iter().sum(),
            stolen: *ticks.get(7)?,
        })
    }

    /// Returns the stolen part of the time since `earlier`, in percent; `None` where no tick lies between.
    pub fn stolen_percent_since(self, earlier: ProcessorTicks) -> Option<f64> {
        let all = self.all.saturating_sub(earlier.all);
        let stolen = self.stolen.saturating_sub(earlier.stolen);
        (all > 0).then(|| 100.0 * stolen as f64 / all as f64)
    }
}

/// Finds the value behind `name:` in a file of lines `name: value`.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let of_line = |line: &'a str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    };
    text.lines().find_map(of_line)
}

#[cfg(test)]
mod tests;
