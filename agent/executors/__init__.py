"""What runs tasks on this host, one package a kind of image."""
