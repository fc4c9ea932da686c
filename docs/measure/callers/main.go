// Command callers publishes messages with go-nsq, as an application does that waits for each answer. It prints the rate and
// the latencies as JSON.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nsqio/go-nsq"
)

func main() {
	address := flag.String("address", "127.0.0.1:4150", "TCP address of nsqd")
	callers := flag.Int("callers", 1, "goroutines, each of which waits for each answer")
	connections := flag.Int("connections", 1, "connections that they share")
	size := flag.Int("size", 200, "bytes of a message")
	warmUp := flag.Duration("warm-up", 500*time.Millisecond, "time that is not measured")
	duration := flag.Duration("duration", 2*time.Second, "time that is measured")
	flag.Parse()

	producers := make([]*nsq.Producer, *connections)
	for i := range producers {
		producer, err := nsq.NewProducer(*address, nsq.NewConfig())
		if err != nil {
			log.Fatal(err)
		}
		producer.SetLogger(log.New(os.Stderr, "", 0), nsq.LogLevelError)
		if err := producer.Ping(); err != nil {
			log.Fatal(err)
		}
		producers[i] = producer
	}
	var isMeasured, isOver atomic.Bool
	latencies := make([][]time.Duration, *callers)
	var running sync.WaitGroup
	for i := range latencies {
		producer := producers[i%len(producers)]
		running.Go(func() {
			body := make([]byte, *size)
			for !isOver.Load() {
				began := time.Now()
				if err := producer.Publish("callers", body); err != nil {
					log.Fatal(err)
				}
				if isMeasured.Load() {
					latencies[i] = append(latencies[i], time.Since(began))
				}
			}
		})
	}
	time.Sleep(*warmUp)
	isMeasured.Store(true)
	began := time.Now()
	time.Sleep(*duration)
	isOver.Store(true)
	took := time.Since(began)
	running.Wait()

	all := slices.Concat(latencies...)
	slices.Sort(all)
	if len(all) == 0 {
		log.Fatal("no message was answered")
	}
	at := func(share float64) float64 {
		return float64(all[int(share*float64(len(all)-1))].Nanoseconds()) / 1000
	}
	err := json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"messages_per_s": float64(len(all)) / took.Seconds(),
		"p50_us":         at(0.5),
		"p99_us":         at(0.99),
	})
	if err != nil {
		log.Fatal(err)
	}
}
