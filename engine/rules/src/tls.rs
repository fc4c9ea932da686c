//! [`TlsSession`]: the encryption of a connection.

/// The result of a TLS handshake, in nsqd's words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsSession {
    /// `TLS1.2` and the like.
    pub version: String,
    /// Name or number of the cipher suite.
    pub cipher_suite: String,
    /// The common name in the client's certificate; empty where there is none.
    pub common_name: String,
}
