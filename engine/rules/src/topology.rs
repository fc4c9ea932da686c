//! The place of consumers, seen from this node (`--enable-experiment=topology-aware-consumption`). A message goes to a
//! consumer in the node's zone. If no such consumer waits, the message goes to one in the node's region, else to any.

/// The place of a consumer, as its first IDENTIFY says. Without the experiment, all consumers are [`Locality::Global`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Locality {
    /// In the node's zone.
    Zone,
    /// In the node's region.
    Region,
    /// Elsewhere, or not known.
    #[default]
    Global,
}

impl Locality {
    /// The number of localities, for counters by locality.
    pub(crate) const COUNT: usize = 3;
}

/// The place of this node: `--topology-zone` and `--topology-region`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Empty: not known.
    pub zone: String,
    /// Empty: not known.
    pub region: String,
}

impl Topology {
    /// Returns the locality of a consumer that names this zone and region. As in nsqd, a consumer without a zone counts
    /// as in the zone of a node without a zone.
    pub(crate) fn locality(&self, zone: &str, region: &str) -> Locality {
        if zone == self.zone {
            Locality::Zone
        } else if region == self.region {
            Locality::Region
        } else {
            Locality::Global
        }
    }

    /// Returns the rank of a consumer: the lowest comes first. Only a place with a name is preferred.
    pub(crate) fn rank(&self, locality: Locality) -> u8 {
        match locality {
            Locality::Zone if !self.zone.is_empty() => 0,
            Locality::Zone | Locality::Region if !self.region.is_empty() => 1,
            _ => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ones_come_first_where_places_have_names() {
        let rank = |zone: &str, region: &str, client_zone, client_region| {
            let node = Topology {
                zone: zone.to_owned(),
                region: region.to_owned(),
            };
            let locality = node.locality(client_zone, client_region);
            (locality, node.rank(locality))
        };
        assert_eq!(rank("z", "r", "z", "r"), (Locality::Zone, 0));
        assert_eq!(rank("z", "r", "z", "other"), (Locality::Zone, 0));
        assert_eq!(rank("z", "r", "y", "r"), (Locality::Region, 1));
        assert_eq!(rank("z", "r", "", ""), (Locality::Global, 2));
        // Counted as near, as in nsqd, but not preferred.
        assert_eq!(rank("", "r", "", "q"), (Locality::Zone, 1));
        assert_eq!(rank("", "", "", ""), (Locality::Zone, 2));
        assert_eq!(rank("z", "", "y", ""), (Locality::Region, 2));
    }
}
