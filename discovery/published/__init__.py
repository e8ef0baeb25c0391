"""Lists of nodes that managers publish for others at a discovery URL: etcd, ZooKeeper, Consul, a file, a manager, fixed."""
