use super::*;
use crate::client::Client;
use wire::decode::ClientState;
use wire::identify::{ClientSettings, ServerSettings};

/// Regression: a timeout in one channel also pumped the channels whose next message was on its way from the disk.
#[test]
fn a_timeout_in_one_channel_pumps_no_other_channel() {
    let options = TopicOptions {
        log: LogOptions::default(),
        mem_queue_size: 0,
        group_commit: false,
        latency: None,
        grace: GraceOptions::default(),
        dead_letters: Default::default(),
        unclaimed: Default::default(),
    };
    let mut topic = Topic::new(TopicName::new(b"orders").expect("a name"), options);
    let mut clients = Clients::default();
    let [cold, busy] = [b"cold", b"busy"].map(|name| {
        let settings = ClientSettings::from_server(&ServerSettings::default());
        let mut client = Client::new("127.0.0.1:1".into(), "127.0.0.1".into(), 0, settings);
        client.session.state = ClientState::Subscribed;
        client.consumer.ready_count = 1;
        let consumer = clients.insert(client);
        let id = topic.create_channel(ChannelName::new(name).expect("a name"));
        let channel = topic.channel_mut(id);
        channel.subscribe(consumer);
        channel.make_ready(consumer, &mut clients[consumer]);
        id
    });
    // A channel that waits for the disk has a ready consumer and messages, and no place among the channels to pump.
    topic.channel_mut(cold).restore(SeqRange::one(Seq(1)), 0);
    let mono = Duration::from_secs(1);
    topic.channel_mut(busy).defer(Seq(2), mono);
    let now = Now { mono, wall_ns: 0 };
    topic.handle_timeout(now, &mut clients, &mut Work::unbounded());
    assert_eq!(topic.channels_to_pump.iter().collect::<Vec<_>>(), [busy]);
}
