//! TLS below the HTTP library, whose own TLS takes fewer certificates than Go's.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use upgrade::{ClientConfig, ClientStream, ClientTls, client_config, system_authorities};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
    TransportAdapter,
};

use super::HttpTls;

/// Adds TLS to the connections of HTTPS.
#[derive(Debug)]
pub(super) struct TlsConnector {
    tls: HttpTls,
    /// The configuration with the authorities of the system, once they have been read.
    of_system: OnceLock<Arc<ClientConfig>>,
}

impl TlsConnector {
    pub(super) fn new(tls: HttpTls) -> TlsConnector {
        TlsConnector {
            tls,
            of_system: OnceLock::new(),
        }
    }

    fn config(&self) -> io::Result<Arc<ClientConfig>> {
        let only_tls13 = match &self.tls {
            HttpTls::Config(config) => return Ok(config.clone()),
            HttpTls::System { only_tls13 } => *only_tls13,
        };
        if let Some(config) = self.of_system.get() {
            return Ok(config.clone());
        }
        let config = system_authorities().and_then(|roots| {
            client_config(&ClientTls {
                authorities: Some(roots),
                cert_and_key: None,
                only_tls13,
            })
        });
        let config = config.map_err(io::Error::other)?;
        Ok(self.of_system.get_or_init(|| config).clone())
    }
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = chained else {
            return Ok(None);
        };
        if !details.needs_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut socket = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        socket.set_timeout(details.timeout);
        let mut stream = ClientStream::new(self.config()?, host, socket)?;
        stream.shake_hands()?;
        Ok(Some(Either::B(TlsTransport {
            buffers: buffers(details),
            stream,
        })))
    }
}

/// A connection with TLS.
pub(super) struct TlsTransport {
    buffers: LazyBuffers,
    stream: ClientStream<TransportAdapter>,
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsTransport").finish_non_exhaustive()
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.below().set_timeout(timeout);
        let output = &self.buffers.output()[..amount];
        Ok(io::Write::write_all(&mut self.stream, output)?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.below().set_timeout(timeout);
        let bytes = io::Read::read(&mut self.stream, self.buffers.input_append_buf())?;
        self.buffers.input_appended(bytes);
        Ok(bytes > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.below().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

fn buffers(details: &ConnectionDetails<'_>) -> LazyBuffers {
    let config = details.config;
    LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size())
}
