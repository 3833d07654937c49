//! Tests of the engine through its public API, in one program: it is linked once.

mod answers;
mod catalog;
mod check;
mod continuous;
mod deployments;
mod directory;
mod disk_tables;
mod examples;
mod file_folders;
mod golden;
mod index_reads;
mod jobs;
mod known;
mod limits;
mod loading;
mod pre_aggregates;
mod privileges;
mod robustness;
mod serial_order;
mod statements;
mod streams;
mod test_directory;
mod user_messages;
mod users;
mod verify;
mod writers;
