//! A stream's encoders belong to the thread that made it.

use mlx_overlay::{Device, Stream};

fn main() {
    let stream = Stream::new(Device::Cpu).unwrap();
    std::thread::spawn(move || stream.synchronize());
}
