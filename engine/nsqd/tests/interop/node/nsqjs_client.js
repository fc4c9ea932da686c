'use strict'
// The interop scenario with nsqjs. ../python/scenario.py describes the plan, which is the same, number for number.

const http = require('http')
const nsq = require('nsqjs')

const CHANNELS = ['first', 'second']
const CONSUMERS_PER_CHANNEL = 2
const PRODUCERS = 4
const PUBLICATIONS_IN_FLIGHT_MAX = 20
const READY = 50 // Per consumer connection.
const MSG_TIMEOUT = 30000 // Milliseconds, like all times here.
const TOUCH_HOLD = MSG_TIMEOUT + 2000
const TOUCH_EVERY = 1000
const EARLY_TOLERANCE = 5 // Granularity of the clocks.
const DEADLINE = 300000
const PATIENCE = 60000 // For a single answer of the broker, on a busy machine.
const BIG_BODIES = [1048576, 1048575, 1000000, 999999]
const VIOLATIONS_MAX = 20

const CRC_TABLE = Int32Array.from({length: 256}, (_, byte) => {
  let crc = byte
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1
  return crc
})

/** Returns the CRC-32 of the number and the padding, that is, of everything except the CRC itself. */
function checksum(body) {
  let crc = -1
  for (let i = 0; i < 8; i++) crc = CRC_TABLE[(crc ^ body[i]) & 255] ^ (crc >>> 8)
  for (let i = 12; i < body.length; i++) crc = CRC_TABLE[(crc ^ body[i]) & 255] ^ (crc >>> 8)
  return ~crc >>> 0
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const now = () => performance.now()

/** The messages to publish: a pure function of their number. */
class Plan {
  constructor(messages) {
    this.messages = messages
    this.tiny = Math.floor(messages / 100)
    this.numbered = messages - this.tiny
    this.deferred = Math.min(300, Math.floor(messages / 100))
    this.bigEnd = this.deferred + BIG_BODIES.length
    this.padding = Buffer.alloc(BIG_BODIES[0] + 4096)
    let state = 1
    for (let i = 0; i < this.padding.length; i++) {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0
      this.padding[i] = state >>> 24
    }
  }

  body(n) {
    let size = 12 + (n % 377)
    if (n >= this.deferred && n < this.bigEnd) size = BIG_BODIES[n - this.deferred]
    else if (n % 1000 === 3) size = 10000 + (n % 97)
    const body = Buffer.alloc(size)
    body.writeBigUInt64BE(BigInt(n), 0)
    this.padding.copy(body, 12, (n * 7919) % 4096)
    body.writeUInt32BE(checksum(body), 8)
    return body
  }

  deferMs(n) {
    return n < this.deferred ? 100 + ((n * 37) % 1901) : 0
  }

  /** Yields all messages in order, as [bodies, defer]. One body is a PUB, or a DPUB if it is deferred. */
  * publications() {
    // The deferred messages come first, while the queues are short. nsqd keeps a deferral only in memory, and may
    // forget it when the message overflows to disk.
    for (let n = 0; n < this.bigEnd; n++) yield [[this.body(n)], this.deferMs(n)]
    for (let n = this.bigEnd, batch = 0; n < this.numbered; batch++) {
      const end = Math.min(this.numbered, n + 50 + ((batch * 31) % 151))
      const bodies = []
      for (; n < end; n++) bodies.push(this.body(n))
      if (batch % 10 !== 0) yield [bodies, 0]
      else for (const body of bodies) yield [[body], 0]
    }
    const tiny = Array.from({length: this.tiny}, (_, i) => Buffer.from([i % 256]))
    const half = Math.floor(this.tiny / 2)
    for (const body of tiny.slice(0, half)) yield [[body], 0]
    if (half < this.tiny) yield [tiny.slice(half), 0]
  }
}

/** The deliveries that the consumers of one channel got, and their answers. */
class Ledger {
  constructor(plan, index) {
    this.plan = plan
    this.name = CHANNELS[index]
    this.shift = 250 * index
    this.deliveries = new Uint8Array(plan.numbered)
    this.finished = new Uint8Array(plan.numbered)
    this.finishedCount = 0
    this.notBefore = new Map() // n -> time before which the next delivery of n would be early
    this.tinyIds = new Set()
    this.tinyValues = new Array(256).fill(0)
    this.requeued = this.touched = this.left = 0
    this.violations = []
  }

  violation(text) {
    if (this.violations.length < VIOLATIONS_MAX) {
      this.violations.push(`channel ${this.name}: ${text}`)
    }
  }

  receive(message) {
    const {body, attempts} = message
    if (body.length === 1) {
      if (this.tinyIds.has(message.id)) {
        this.violation(`one-byte message ${message.id} came again after FIN`)
      } else {
        this.tinyIds.add(message.id)
        this.tinyValues[body[0]]++
      }
      return message.finish()
    }
    const n = this.numberIn(body)
    if (n < 0) return message.finish()
    if (this.finished[n]) {
      this.violation(`message ${n} came again after FIN (attempts ${attempts})`)
      return message.finish()
    }
    const delivery = ++this.deliveries[n]
    if (attempts !== delivery) {
      this.violation(`message ${n}: attempts ${attempts} at delivery ${delivery}`)
    }
    if (delivery > 1) {
      if (!this.notBefore.has(n)) this.violation(`message ${n} came again without REQ or timeout`)
      const early = (this.notBefore.get(n) || 0) - now()
      if (early > EARLY_TOLERANCE) this.violation(`message ${n} came again ${early} ms early`)
      return this.finish(message, n)
    }
    const defer = this.plan.deferMs(n)
    if (defer) {
      const early = Number(message.timestamp / 1000000n) + defer - Date.now()
      if (early > EARLY_TOLERANCE) this.violation(`deferred message ${n} came ${early} ms early`)
    }
    return this.firstAction(message, n)
  }

  numberIn(body) {
    const n = body.length >= 12 ? Number(body.readBigUInt64BE(0)) : this.plan.numbered
    if (n >= this.plan.numbered) {
      this.violation(`a body of ${body.length} bytes without a known number`)
      return -1
    }
    if (body.readUInt32BE(8) !== checksum(body)) {
      this.violation(`message ${n} is corrupt (${body.length} bytes)`)
      return -1
    }
    return n
  }

  firstAction(message, n) {
    const m = n + this.shift
    // The second argument is "backoff". With true, the reader would stop for a while after each REQ.
    if (m % 500 === 7) {
      this.requeued++
      this.notBefore.set(n, 0)
      message.requeue(0, false)
    } else if (m % 500 === 107) {
      this.requeued++
      const delay = 50 + ((n * 13) % 251)
      this.notBefore.set(n, now() + delay)
      message.requeue(delay, false)
    } else if (m % 5000 === 211) {
      this.touched++
      this.hold(message, n, now() + TOUCH_HOLD)
    } else if (m % 5000 === 311) {
      this.left++
      // The timeout began when the message left the broker, so not before it was published.
      const age = Date.now() - Number(message.timestamp / 1000000n)
      this.notBefore.set(n, now() - age + MSG_TIMEOUT)
    } else {
      this.finish(message, n)
    }
  }

  async hold(message, n, until) {
    while (now() < until) {
      await sleep(TOUCH_EVERY)
      message.touch()
    }
    this.finish(message, n)
  }

  finish(message, n) {
    message.finish()
    this.finished[n] = 1
    this.finishedCount++
  }

  isDone() {
    return this.finishedCount === this.plan.numbered && this.tinyIds.size === this.plan.tiny
  }

  check() {
    const lost = this.plan.numbered - this.finishedCount
    if (lost > 0) {
      const first = this.finished.indexOf(0)
      // The limit of violations does not hold here.
      this.violations.unshift(
        `channel ${this.name}: ${lost} messages not received and finished, first ${first}`)
    }
    const expected = new Array(256).fill(0)
    for (let i = 0; i < this.plan.tiny; i++) expected[i % 256]++
    if (expected.some((count, value) => count !== this.tinyValues[value])) {
      this.violations.unshift(`channel ${this.name}: one-byte messages: ` +
        `${this.tinyIds.size} of ${this.plan.tiny}, or wrong values`)
    }
  }
}

async function waitFor(what, patience, condition) {
  const until = now() + patience
  for (;;) {
    const problem = await condition()
    if (!problem) return
    if (now() > until) throw new Error(`${what}, not within ${patience} ms: ${problem}`)
    await sleep(50)
  }
}

function request(address, method, path) {
  return new Promise((resolve, reject) => {
    const call = http.request(`http://${address}${path}`, {method}, (response) => {
      const parts = []
      response.on('data', (part) => parts.push(part))
      response.on('end', () => {
        const text = Buffer.concat(parts).toString()
        if (response.statusCode === 200) resolve(text)
        else reject(new Error(`${method} ${path}: ${response.statusCode} ${text}`))
      })
    })
    call.on('error', reject)
    call.end()
  })
}

async function fetchTopic(args) {
  const text = await request(args.http, 'GET', `/stats?format=json&topic=${args.topic}`)
  return JSON.parse(text).topics[0]
}

function produce(args, plan) {
  const [host, port] = args.tcp.split(':')
  return new Promise((resolve, reject) => {
    const writers = Array.from({length: PRODUCERS}, () => new nsq.Writer(host, Number(port), upgrades(args)))
    const work = plan.publications()
    let connected = 0
    let inFlight = 0
    let turn = 0
    let failed = false
    const answered = (error) => {
      inFlight--
      if (error) {
        failed = true
        reject(error)
      } else {
        feed()
      }
    }
    const feed = () => {
      while (!failed && inFlight < PUBLICATIONS_IN_FLIGHT_MAX) {
        const {value, done} = work.next()
        if (done) break
        const [bodies, defer] = value
        const writer = writers[turn++ % writers.length]
        inFlight++
        // deferPublish passes the message on unchanged, to a function that takes only arrays.
        if (defer) writer.deferPublish(args.topic, bodies, defer, answered)
        else writer.publish(args.topic, bodies, answered)
      }
      if (inFlight === 0 && !failed) {
        failed = true // A close is no failure, but nothing can be published after it.
        writers.forEach((writer) => writer.close())
        resolve()
      }
    }
    for (const writer of writers) {
      writer.on('error', reject)
      writer.on('ready', () => ++connected === writers.length && feed())
      writer.connect()
    }
  })
}

async function run(args, plan, ledgers) {
  const started = now()
  await request(args.http, 'POST', `/topic/create?topic=${args.topic}`)
  const readers = []
  for (const ledger of ledgers) {
    await request(
      args.http, 'POST', `/channel/create?topic=${args.topic}&channel=${ledger.name}`)
    // One reader has one connection per nsqd, so two connections are two readers.
    for (let i = 0; i < CONSUMERS_PER_CHANNEL; i++) {
      const reader = new nsq.Reader(args.topic, ledger.name, {
        nsqdTCPAddresses: args.tcp,
        maxInFlight: READY,
        messageTimeout: MSG_TIMEOUT,
        ...upgrades(args),
      })
      reader.on('message', (message) => ledger.receive(message))
      reader.on('error', (error) => ledger.violation(`reader: ${error}`))
      reader.connect()
      readers.push(reader)
    }
  }
  await waitFor('all consumers subscribed', PATIENCE, async () => {
    const {channels} = await fetchTopic(args)
    return channels.some((channel) => channel.client_count !== CONSUMERS_PER_CHANNEL) &&
      'some are missing'
  })
  await Promise.race([
    produce(args, plan),
    sleep(DEADLINE).then(() => {
      throw new Error('publishing is not finished in time')
    }),
  ])
  for (const ledger of ledgers) {
    await waitFor(`channel ${ledger.name}`, started + DEADLINE - now(),
      () => !ledger.isDone() && 'messages are missing')
  }
  // A FIN may still be on its way.
  await waitFor('right figures in /stats', PATIENCE, async () => {
    const topic = await fetchTopic(args)
    const right = topic.depth === 0 && topic.message_count === plan.messages &&
      topic.channels.length === ledgers.length &&
      topic.channels.every((channel, i) => // Sorted by name, as CHANNELS is.
        channel.channel_name === CHANNELS[i] && channel.depth === 0 &&
        channel.in_flight_count === 0 && channel.deferred_count === 0 &&
        channel.message_count === plan.messages &&
        channel.requeue_count >= ledgers[i].requeued &&
        channel.timeout_count >= ledgers[i].left)
    topic.channels.forEach((channel) => delete channel.clients)
    return !right && JSON.stringify(topic)
  })
  await sleep(300) // Any message that comes now is a violation.
  readers.forEach((reader) => reader.close())
}

/** The upgrades of connections. nsqjs can verify a certificate only against the system's authorities. */
function upgrades(args) {
  const options = {}
  if (args['tls-ca']) Object.assign(options, {tls: true, tlsVerification: false})
  if (args.compression === 'deflate') Object.assign(options, {deflate: true, deflateLevel: 6})
  return options
}

async function main() {
  const args = {}
  for (let i = 2; i < process.argv.length; i += 2) {
    args[process.argv[i].replace(/^--/, '')] = process.argv[i + 1]
  }
  const started = now()
  const plan = new Plan(Number(args.messages))
  const ledgers = CHANNELS.map((_, index) => new Ledger(plan, index))
  const problems = []
  try {
    await run(args, plan, ledgers)
  } catch (error) {
    problems.push(String(error))
  }
  for (const ledger of ledgers) {
    ledger.check()
    problems.push(...ledger.violations)
  }
  console.log(JSON.stringify({
    library: `nsqjs ${require('nsqjs/package.json').version}`,
    messages: plan.messages,
    ok: problems.length === 0,
    seconds: Math.round((now() - started) / 100) / 10,
    channels: ledgers.map((ledger) => ({
      channel: ledger.name,
      requeued: ledger.requeued,
      touched: ledger.touched,
      left: ledger.left,
    })),
  }))
  problems.forEach((text) => console.error(`nsqjs: ${text}`))
  // process.exit would lose output, because stdout may be a pipe that is not empty yet. Timers must not keep the
  // process alive either.
  process.exitCode = problems.length > 0 ? 1 : 0
  setTimeout(() => process.exit(), 500).unref()
}

main()
