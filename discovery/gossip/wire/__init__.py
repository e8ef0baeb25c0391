"""Messages to bytes and back, as memberlist 0.2.2 and Serf 0.9.4 write them. No I/O, no clock.

Quirks of the wire end here: old-spec msgpack, addresses as raw bytes, nil beside empty. What a peer sends raises
`RemoteProtocolError` and nothing else, and costs time and memory in proportion to the limits of `packet` and `stream`.
"""
