// Command interop is the interop scenario with go-nsq. ../python/scenario.py describes the plan, which is the same,
// number for number.
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"math/rand"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	nsq "github.com/nsqio/go-nsq"
)

const (
	consumersPerChannel = 2
	producers           = 4
	ready               = 100 // Per consumer connection.
	handlers            = 4  // Per consumer connection.
	msgTimeout          = 30 * time.Second
	touchHold           = msgTimeout + 2*time.Second
	touchEvery          = time.Second
	earlyTolerance      = 5 * time.Millisecond // Granularity of the clocks.
	deadline            = 300 * time.Second
	patience            = 60 * time.Second // For a single answer of the broker, on a busy machine.
	violationsMax       = 20
)

var (
	channelNames = []string{"first", "second"}
	bigBodies    = []int{1048576, 1048575, 1000000, 999999}
)

// The upgrades of connections.
var tlsCA, compression string

func newConfig() *nsq.Config {
	config := nsq.NewConfig()
	set := func(name string, value any) {
		if err := config.Set(name, value); err != nil {
			log.Fatal(err)
		}
	}
	if tlsCA != "" {
		set("tls_v1", true)
		set("tls_root_ca_file", tlsCA)
	}
	if compression != "" {
		set(compression, true)
	}
	// The TLS handshake and the time to compress a megabyte count as writing. The default limits of 1 s are too short on a
	// busy machine.
	set("write_timeout", "30s")
	set("dial_timeout", "30s")
	return config
}

// plan has the messages to publish: a pure function of their number.
type plan struct {
	messages, tiny, numbered, deferred, bigEnd int
	padding                                    []byte
}

func newPlan(messages int) *plan {
	p := &plan{messages: messages, tiny: messages / 100, deferred: min(300, messages/100)}
	p.numbered = messages - p.tiny
	p.bigEnd = p.deferred + len(bigBodies)
	p.padding = make([]byte, bigBodies[0]+4096)
	rand.New(rand.NewSource(1)).Read(p.padding)
	return p
}

func (p *plan) body(n int) []byte {
	size := 12 + n%377
	if n >= p.deferred && n < p.bigEnd {
		size = bigBodies[n-p.deferred]
	} else if n%1000 == 3 {
		size = 10000 + n%97
	}
	body := make([]byte, size)
	binary.BigEndian.PutUint64(body, uint64(n))
	copy(body[12:], p.padding[n*7919%4096:])
	binary.BigEndian.PutUint32(body[8:], checksum(body))
	return body
}

func (p *plan) deferral(n int) time.Duration {
	if n >= p.deferred {
		return 0
	}
	return time.Duration(100+n*37%1901) * time.Millisecond
}

// batches calls publish for all messages after the deferred and big ones. A list of one body is a PUB.
func (p *plan) batches(publish func(bodies [][]byte)) {
	for n, batch := p.bigEnd, 0; n < p.numbered; batch++ {
		end := min(p.numbered, n+50+batch*31%151)
		var bodies [][]byte
		for ; n < end; n++ {
			bodies = append(bodies, p.body(n))
		}
		if batch%10 != 0 {
			publish(bodies)
			continue
		}
		for _, body := range bodies {
			publish([][]byte{body})
		}
	}
	var tiny [][]byte
	for i := 0; i < p.tiny; i++ {
		body := []byte{byte(i)}
		if i < p.tiny/2 {
			publish([][]byte{body})
		} else {
			tiny = append(tiny, body)
		}
	}
	if len(tiny) > 0 {
		publish(tiny)
	}
}

func checksum(body []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE(body[:8]), crc32.IEEETable, body[12:])
}

type action int

const (
	finish action = iota
	requeue
	touch
	leave
)

// ledger has the deliveries that the consumers of one channel got, and their answers.
type ledger struct {
	sync.Mutex
	plan          *plan
	name          string
	shift         int
	deliveries    []uint16
	finished      []bool
	finishedCount int
	notBefore     map[int]time.Time // Time before which the next delivery would be early.
	tinyIDs       map[nsq.MessageID]bool
	tinyValues    [256]int
	abandoned     []*nsq.Message
	requeued      int
	touched       int
	left          int
	violations    []string
}

func newLedger(p *plan, index int) *ledger {
	return &ledger{
		plan: p, name: channelNames[index], shift: 250 * index,
		deliveries: make([]uint16, p.numbered), finished: make([]bool, p.numbered),
		notBefore: map[int]time.Time{}, tinyIDs: map[nsq.MessageID]bool{},
	}
}

func (l *ledger) violation(format string, args ...any) {
	if len(l.violations) < violationsMax {
		l.violations = append(l.violations, "channel "+l.name+": "+fmt.Sprintf(format, args...))
	}
}

// deliver checks a delivery and says what to do with it. n is -1 for bodies without a number.
func (l *ledger) deliver(m *nsq.Message) (do action, n int, delay time.Duration) {
	l.Lock()
	defer l.Unlock()
	if len(m.Body) == 1 {
		if l.tinyIDs[m.ID] {
			l.violation("one-byte message %s came again after FIN", m.ID[:])
		} else {
			l.tinyIDs[m.ID] = true
			l.tinyValues[m.Body[0]]++
		}
		return finish, -1, 0
	}
	n = l.numberIn(m.Body)
	if n < 0 {
		return finish, n, 0
	}
	if l.finished[n] {
		l.violation("message %d came again after FIN (attempts %d)", n, m.Attempts)
		return finish, -1, 0
	}
	l.deliveries[n]++
	if m.Attempts != l.deliveries[n] {
		l.violation("message %d: attempts %d at delivery %d", n, m.Attempts, l.deliveries[n])
	}
	if l.deliveries[n] == 1 {
		if deferral := l.plan.deferral(n); deferral > 0 {
			early := time.Until(time.Unix(0, m.Timestamp).Add(deferral))
			if early > earlyTolerance {
				l.violation("deferred message %d came %v early", n, early)
			}
		}
		return l.firstAction(n, m)
	}
	notBefore, known := l.notBefore[n]
	if !known {
		l.violation("message %d came again without REQ or timeout", n)
	} else if early := time.Until(notBefore); early > earlyTolerance {
		l.violation("message %d came again %v early", n, early)
	}
	return finish, n, 0
}

func (l *ledger) numberIn(body []byte) int {
	if len(body) < 12 || binary.BigEndian.Uint64(body) >= uint64(l.plan.numbered) {
		l.violation("a body of %d bytes without a known number", len(body))
		return -1
	}
	n := int(binary.BigEndian.Uint64(body))
	if binary.BigEndian.Uint32(body[8:]) != checksum(body) {
		l.violation("message %d is corrupt (%d bytes)", n, len(body))
		return -1
	}
	return n
}

func (l *ledger) firstAction(n int, message *nsq.Message) (action, int, time.Duration) {
	m := n + l.shift
	switch {
	case m%500 == 7:
		l.requeued++
		l.notBefore[n] = time.Now()
		return requeue, n, 0
	case m%500 == 107:
		l.requeued++
		delay := time.Duration(50+n*13%251) * time.Millisecond
		l.notBefore[n] = time.Now().Add(delay)
		return requeue, n, delay
	case m%5000 == 211:
		l.touched++
		return touch, n, 0
	case m%5000 == 311:
		l.left++
		// The timeout began when the message left the broker, so not before it was published.
		age := time.Since(time.Unix(0, message.Timestamp))
		l.notBefore[n] = time.Now().Add(msgTimeout - age)
		l.abandoned = append(l.abandoned, message)
		return leave, n, 0
	}
	return finish, n, 0
}

func (l *ledger) finish(m *nsq.Message, n int) {
	m.Finish()
	if n >= 0 {
		l.Lock()
		defer l.Unlock()
		l.finished[n] = true
		l.finishedCount++
	}
}

func (l *ledger) isDone() bool {
	l.Lock()
	defer l.Unlock()
	return l.finishedCount == l.plan.numbered && len(l.tinyIDs) == l.plan.tiny
}

// HandleMessage implements nsq.Handler.
func (l *ledger) HandleMessage(m *nsq.Message) error {
	m.DisableAutoResponse()
	do, n, delay := l.deliver(m)
	switch do {
	case finish:
		l.finish(m, n)
	case requeue:
		m.RequeueWithoutBackoff(delay)
	case touch:
		go func() {
			for held := time.Duration(0); held < touchHold; held += touchEvery {
				time.Sleep(touchEvery)
				m.Touch()
			}
			l.finish(m, n)
		}()
	case leave:
	}
	return nil
}

// finishLate answers messages that timed out long ago. The broker says E_FIN_FAILED, which is not fatal. The library
// still counts these messages as in flight, and can close properly after these answers.
func (l *ledger) finishLate() {
	for _, message := range l.abandoned {
		message.Finish()
	}
}

func (l *ledger) check() {
	violations := l.violations
	l.violations = nil // The final checks come first, even if the list was full.
	defer func() { l.violations = append(l.violations, violations...) }()
	lost := 0
	first := -1
	for n, finished := range l.finished {
		if !finished {
			lost++
			if first < 0 {
				first = n
			}
		}
	}
	if lost > 0 {
		l.violation("%d messages not received and finished, first %d", lost, first)
	}
	var expected [256]int
	for i := 0; i < l.plan.tiny; i++ {
		expected[i%256]++
	}
	if expected != l.tinyValues {
		l.violation("one-byte messages: %d of %d, or wrong values", len(l.tinyIDs), l.plan.tiny)
	}
}

func produce(tcp, topic string, p *plan, until time.Time) error {
	var writers []*nsq.Producer
	for i := 0; i < producers; i++ {
		writer, err := nsq.NewProducer(tcp, newConfig())
		if err != nil {
			return err
		}
		writer.SetLoggerLevel(nsq.LogLevelError)
		defer writer.Stop()
		writers = append(writers, writer)
	}
	// The deferred messages come first, while the queues are short. nsqd keeps a deferral only in memory, and may forget
	// it when the message overflows to disk.
	done := make(chan *nsq.ProducerTransaction, p.deferred)
	for n := 0; n < p.deferred; n++ {
		writer := writers[n%producers]
		if err := writer.DeferredPublishAsync(topic, p.deferral(n), p.body(n), done); err != nil {
			return err
		}
	}
	for n := 0; n < p.deferred; n++ {
		select {
		case transaction := <-done:
			if transaction.Error != nil {
				return fmt.Errorf("DPUB: %w", transaction.Error)
			}
		case <-time.After(time.Until(until)):
			return fmt.Errorf("only %d of %d DPUBs were answered", n, p.deferred)
		}
	}
	work := make(chan [][]byte, 16)
	errors := make(chan error, producers)
	for _, writer := range writers {
		go func(writer *nsq.Producer) {
			var err error
			for bodies := range work {
				if err != nil {
					continue // Keep emptying the channel, so that the sender ends.
				}
				if len(bodies) == 1 {
					err = writer.Publish(topic, bodies[0])
				} else {
					err = writer.MultiPublish(topic, bodies)
				}
			}
			errors <- err
		}(writer)
	}
	for n := p.deferred; n < p.bigEnd; n++ {
		work <- [][]byte{p.body(n)}
	}
	p.batches(func(bodies [][]byte) { work <- bodies })
	close(work)
	for i := 0; i < producers; i++ {
		if err := <-errors; err != nil {
			return fmt.Errorf("publishing: %w", err)
		}
	}
	return nil
}

func request(method, url string) ([]byte, error) {
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != 200 {
		err = fmt.Errorf("%s %s: %s %s", method, url, response.Status, body)
	}
	return body, err
}

type stats struct {
	Topics []struct {
		Depth        int64 `json:"depth"`
		MessageCount int   `json:"message_count"`
		Channels     []struct {
			Name         string `json:"channel_name"`
			Depth        int64  `json:"depth"`
			InFlight     int    `json:"in_flight_count"`
			Deferred     int    `json:"deferred_count"`
			MessageCount int    `json:"message_count"`
			Requeues     int    `json:"requeue_count"`
			Timeouts     int    `json:"timeout_count"`
			ClientCount  int    `json:"client_count"`
		} `json:"channels"`
	} `json:"topics"`
}

func fetchStats(address, topic string) (s stats, err error) {
	body, err := request("GET", "http://"+address+"/stats?format=json&topic="+topic)
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err == nil && len(s.Topics) != 1 {
		err = fmt.Errorf("/stats has %d topics, not 1", len(s.Topics))
	}
	return s, err
}

func waitFor(what string, patience time.Duration, condition func() error) error {
	until := time.Now().Add(patience)
	for {
		err := condition()
		if err == nil {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("%s, not within %v: %w", what, patience, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func checkStats(address, topic string, p *plan, ledgers []*ledger) error {
	s, err := fetchStats(address, topic)
	if err != nil {
		return err
	}
	t := s.Topics[0]
	if t.Depth != 0 || t.MessageCount != p.messages || len(t.Channels) != len(ledgers) {
		return fmt.Errorf("topic: %+v", t)
	}
	for i, c := range t.Channels { // Sorted by name, as channelNames is.
		if c.Name != channelNames[i] || c.Depth != 0 || c.InFlight != 0 || c.Deferred != 0 ||
			c.MessageCount != p.messages ||
			c.Requeues < ledgers[i].requeued || c.Timeouts < ledgers[i].left {
			return fmt.Errorf("channel: %+v", c)
		}
	}
	return nil
}

func run(tcp, address, topic string, p *plan, ledgers []*ledger) error {
	started := time.Now()
	if _, err := request("POST", "http://"+address+"/topic/create?topic="+topic); err != nil {
		return err
	}
	var consumers []*nsq.Consumer
	for _, l := range ledgers {
		url := "http://" + address + "/channel/create?topic=" + topic + "&channel=" + l.name
		if _, err := request("POST", url); err != nil {
			return err
		}
		// One consumer has one connection per nsqd, so two connections are two consumers.
		for i := 0; i < consumersPerChannel; i++ {
			config := newConfig()
			config.MaxInFlight = ready
			config.MaxAttempts = 0
			config.MsgTimeout = msgTimeout
			consumer, err := nsq.NewConsumer(topic, l.name, config)
			if err != nil {
				return err
			}
			// Late FINs are part of the scenario, and the library logs their errors.
			consumer.SetLogger(log.New(io.Discard, "", 0), nsq.LogLevelError)
			consumer.AddConcurrentHandlers(l, handlers)
			if err := consumer.ConnectToNSQD(tcp); err != nil {
				return err
			}
			consumers = append(consumers, consumer)
		}
	}
	err := waitFor("all consumers subscribed", patience, func() error {
		s, err := fetchStats(address, topic)
		if err != nil {
			return err
		}
		for _, c := range s.Topics[0].Channels {
			if c.ClientCount != consumersPerChannel {
				return fmt.Errorf("%d clients on %s", c.ClientCount, c.Name)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := produce(tcp, topic, p, started.Add(deadline)); err != nil {
		return err
	}
	for _, l := range ledgers {
		err := waitFor("channel "+l.name, time.Until(started.Add(deadline)), func() error {
			if l.isDone() {
				return nil
			}
			return fmt.Errorf("messages are missing")
		})
		if err != nil {
			return err
		}
	}
	err = waitFor("right figures in /stats", patience, func() error {
		return checkStats(address, topic, p, ledgers)
	})
	if err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond) // Any message that comes now is a violation.
	for _, l := range ledgers {
		l.finishLate()
	}
	// Stop sends CLS, waits for CLOSE_WAIT, and closes.
	for _, consumer := range consumers {
		consumer.Stop()
	}
	for _, consumer := range consumers {
		select {
		case <-consumer.StopChan:
		case <-time.After(patience):
			return fmt.Errorf("a consumer has not stopped %v after CLS", patience)
		}
	}
	return checkStats(address, topic, p, ledgers)
}

func main() {
	tcp := flag.String("tcp", "", "host:port of the protocol")
	address := flag.String("http", "", "host:port of HTTP")
	messages := flag.Int("messages", 0, "messages in all")
	topic := flag.String("topic", "", "topic")
	flag.StringVar(&tlsCA, "tls-ca", "", "authority of the broker's certificate; empty for no TLS")
	flag.StringVar(&compression, "compression", "", "snappy or deflate; empty for none")
	flag.Parse()
	started := time.Now()
	p := newPlan(*messages)
	var ledgers []*ledger
	for index := range channelNames {
		ledgers = append(ledgers, newLedger(p, index))
	}
	err := run(*tcp, *address, *topic, p, ledgers)
	var problems []string
	if err != nil {
		problems = append(problems, err.Error())
	}
	var channels []map[string]any
	for _, l := range ledgers {
		l.Lock()
		l.check()
		problems = append(problems, l.violations...)
		channels = append(channels, map[string]any{
			"channel": l.name, "requeued": l.requeued, "touched": l.touched, "left": l.left,
		})
		l.Unlock()
	}
	var summary bytes.Buffer
	// Maps of strings and numbers always encode.
	_ = json.NewEncoder(&summary).Encode(map[string]any{
		"library": "go-nsq " + nsq.VERSION, "messages": *messages, "ok": len(problems) == 0,
		"seconds": time.Since(started).Round(100 * time.Millisecond).Seconds(), "channels": channels,
	})
	fmt.Print(summary.String())
	if len(problems) > 0 {
		fmt.Fprintln(os.Stderr, "go-nsq: "+strings.Join(problems, "\ngo-nsq: "))
		os.Exit(1)
	}
}
