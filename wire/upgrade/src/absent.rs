//! The types of features that are not built. They have no values, so none of their functions is ever called.

use std::io::IoSlice;

use crate::{Room, UpgradeError};

/// Declares a type without values, with its functions.
macro_rules! absent {
    ($type:ident { $(fn $function:ident($receiver:ty $(, $argument:ty)*) $(-> $result:ty)?;)* }) => {
        #[derive(Debug)]
        pub(crate) enum $type {}

        impl $type {
            $(pub(crate) fn $function(self: $receiver $(, _: $argument)*) $(-> $result)? {
                match *self {}
            })*
        }
    };
}

#[cfg(not(feature = "tls"))]
impl Tls {
    pub(crate) fn server(config: std::sync::Arc<crate::ServerConfig>) -> Result<Tls, UpgradeError> {
        match *config {}
    }
}

#[cfg(not(feature = "tls"))]
absent!(Tls {
    fn is_handshaking(&Self) -> bool;
    fn has_ended(&Self) -> bool;
    fn session(&Self) -> Option<crate::Session>;
    fn encrypt(&mut Self, &[IoSlice<'_>]) -> Result<(), UpgradeError>;
    fn shake_hands(&mut Self, &mut &[u8]) -> Result<(), UpgradeError>;
    fn decrypt(&mut Self, &mut &[u8], &mut Room<'_>) -> Result<(), UpgradeError>;
    fn end(&mut Self);
    fn drain(&mut Self, &mut Vec<u8>);
});

#[cfg(not(feature = "compression"))]
absent!(Compression {
    fn compress(&mut Self, &[IoSlice<'_>], &mut Vec<u8>) -> Result<(), UpgradeError>;
    fn decompress(&mut Self, &mut &[u8], &mut Room<'_>) -> Result<(), UpgradeError>;
    fn has_ended(&Self) -> bool;
});
