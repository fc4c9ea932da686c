//! What programs name of TLS, for a build without the feature `tls`: no configuration can be made, so there is never a
//! session.

use std::convert::Infallible;
use std::fmt;
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{ClientTls, ServerTls};

/// The configuration of a client.
pub type ClientConfig = Infallible;
/// The authorities that sign certificates.
pub type RootCertStore = Infallible;
/// The configuration of a daemon.
pub type ServerConfig = Infallible;

/// The reason why a configuration cannot be made.
#[derive(Debug)]
pub enum ConfigError {
    /// A file cannot be read.
    Open(PathBuf, io::Error),
    /// The settings ask for verification but name no authority.
    NoAuthorities,
    /// The feature `tls` is not built.
    NotBuilt,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tls: this program was built without TLS")
    }
}

impl std::error::Error for ConfigError {}

/// Makes no configuration.
///
/// # Errors
/// Always.
pub fn server_config(_: &ServerTls<'_>) -> Result<Arc<ServerConfig>, ConfigError> {
    Err(ConfigError::NotBuilt)
}

/// Makes no configuration.
///
/// # Errors
/// Always.
pub fn client_config(_: &ClientTls<'_>) -> Result<Arc<ClientConfig>, ConfigError> {
    Err(ConfigError::NotBuilt)
}

/// Reads no authorities.
///
/// # Errors
/// Always.
pub fn authorities(_: &Path) -> Result<RootCertStore, ConfigError> {
    Err(ConfigError::NotBuilt)
}

/// Reads no authorities.
///
/// # Errors
/// Always.
pub fn system_authorities() -> Result<RootCertStore, ConfigError> {
    Err(ConfigError::NotBuilt)
}

/// The client's side of TLS over a stream that blocks. Nobody has one.
#[derive(Debug)]
pub struct ClientStream<S>(Infallible, PhantomData<S>);

impl<S: Read + Write> ClientStream<S> {
    /// Is never called, because there is no configuration.
    ///
    /// # Errors
    /// None.
    pub fn new(config: Arc<ClientConfig>, _host: &str, _stream: S) -> io::Result<ClientStream<S>> {
        match *config {}
    }

    /// Is never called.
    pub fn below(&mut self) -> &mut S {
        match self.0 {}
    }

    /// Is never called.
    ///
    /// # Errors
    /// None.
    pub fn shake_hands(&mut self) -> io::Result<()> {
        match self.0 {}
    }
}

impl<S> Read for ClientStream<S> {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }
}

impl<S> Write for ClientStream<S> {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0 {}
    }
}
