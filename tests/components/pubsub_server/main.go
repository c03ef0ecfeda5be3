// Google's in-memory Pub/Sub, as a process of its own.
package main

import (
	"flag"

	"cloud.google.com/go/pubsub/v2/pstest"
)

func main() {
	port := flag.Int("port", 0, "where to listen")
	flag.Parse()
	server := pstest.NewServerWithPort(*port)
	defer server.Close()
	select {}
}
