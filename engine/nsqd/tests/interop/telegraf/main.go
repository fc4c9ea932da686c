// Command telegraf runs the nsq input of telegraf once, against the nsqd at the URL in its argument.
// It prints one JSON object for each measurement.
package main

import (
	"encoding/json"
	"log"
	"os"
	"sync"
	"time"

	"github.com/influxdata/telegraf"
	"github.com/influxdata/telegraf/plugins/inputs/nsq"
)

// printer is the part of an accumulator that the input uses. Another call would end the program.
type printer struct {
	telegraf.Accumulator
	mutex sync.Mutex
}

func (p *printer) AddFields(name string, fields map[string]any, tags map[string]string, _ ...time.Time) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	line := map[string]any{"name": name, "fields": fields, "tags": tags}
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		log.Fatal(err)
	}
}

func (p *printer) AddError(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	input := nsq.NSQ{Endpoints: os.Args[1:]}
	if err := input.Gather(&printer{}); err != nil {
		log.Fatal(err)
	}
}
