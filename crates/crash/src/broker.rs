//! The broker of a driver, over which the children of the cycles of Kafka and of groups work.

use krafka::{Kafka, Record, producer::Producer, testing::FakeBroker};
use tokio::runtime::Runtime;

/// A broker in this process, and what writes to it.
pub(crate) struct DriverBroker {
    runtime: Runtime,
    pub(crate) broker: FakeBroker,
    producer: Producer,
}

impl DriverBroker {
    /// Starts a broker with topics, each with its number of partitions.
    pub(crate) fn new(topics: &[(&str, i32)]) -> Self {
        assert!(!topics.is_empty(), "something is written to a broker");
        let runtime = Runtime::new().expect("the machine has threads");
        let broker = runtime.block_on(FakeBroker::start()).expect("a port is free");
        for (topic, partitions) in topics {
            assert!(broker.create_topic(topic, *partitions), "it is a new one");
        }
        let connected = Kafka::builder(broker.bootstrap_servers()).connect();
        let kafka = runtime.block_on(connected).expect("the broker runs");
        let producer = runtime.block_on(kafka.producer().build()).expect("it is connected");
        Self { runtime, broker, producer }
    }

    /// Writes messages.
    pub(crate) fn write(&self, records: Vec<Record>) {
        self.runtime.block_on(async {
            let mut written = Vec::new();
            for record in records {
                written.push(self.producer.enqueue(record).await.expect("the buffer has space"));
            }
            for written in written {
                // A loss of the connection is the client's to handle.
                assert!(written.await.is_ok(), "a message is written");
            }
        });
    }
}
