// Command consumer is a consumer with go-nsq that finds nsqds by nsqlookupds. It prints the body of each message in a line
// of its own, and ends when its standard input ends.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	nsq "github.com/nsqio/go-nsq"
)

// addresses is a flag that may be given multiple times.
type addresses []string

func (a *addresses) String() string { return strings.Join(*a, ",") }

func (a *addresses) Set(value string) error {
	*a = append(*a, value)
	return nil
}

func main() {
	var lookupds addresses
	flag.Var(&lookupds, "lookupd", "HTTP address of nsqlookupds (may be given multiple times)")
	topic := flag.String("topic", "", "topic to consume")
	channel := flag.String("channel", "", "channel to consume")
	flag.Parse()
	config := nsq.NewConfig()
	for name, value := range map[string]any{
		"lookupd_poll_interval": "500ms",
		"lookupd_poll_timeout":  "5s",
		"heartbeat_interval":    "2s",
		"read_timeout":          "6s",
		"max_in_flight":         300,
	} {
		if err := config.Set(name, value); err != nil {
			log.Fatal(err)
		}
	}
	consumer, err := nsq.NewConsumer(*topic, *channel, config)
	if err != nil {
		log.Fatal(err)
	}
	consumer.AddHandler(nsq.HandlerFunc(func(message *nsq.Message) error {
		_, err := fmt.Println(string(message.Body))
		return err
	}))
	// An nsqlookupd that cannot be reached is asked again.
	if err := consumer.ConnectToNSQLookupds(lookupds); err != nil {
		log.Print(err)
	}
	io.Copy(io.Discard, os.Stdin)
}
