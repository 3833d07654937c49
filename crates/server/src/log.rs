//! Structured logs: one JSON object in each line of the standard error output.

use tracing::level_filters::LevelFilter;

use crate::ServerSettings;

/// Logs from now on, as `log.level` says, also what the engine warns of. To be called once in a
/// process; later calls change nothing.
pub fn log_to_stderr(settings: &ServerSettings) {
    let level = match settings.log_level.as_str() {
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "debug" => LevelFilter::DEBUG,
        _ => LevelFilter::INFO,
    };
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(level)
        .with_target(false)
        // Reported to the standard error output, too, by a macro that panics where it is closed.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    if subscriber.try_init().is_ok() {
        lockstep_host::log::set_sink(|line| tracing::warn!("{line}"));
    }
}

/// Logs a line about the life of the server.
pub fn log_line(line: &str) {
    tracing::info!("{line}");
}
