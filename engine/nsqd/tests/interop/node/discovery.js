'use strict'
// A consumer with nsqjs that finds nsqds by nsqlookupds. Prints the body of each message in a line of its own.

const nsq = require('nsqjs')

const values = {'--lookupd': []}
for (let i = 2; i < process.argv.length; i += 2) {
  const [name, value] = process.argv.slice(i, i + 2)
  if (name === '--lookupd') values[name].push(value)
  else values[name] = value
}

const reader = new nsq.Reader(values['--topic'], values['--channel'], {
  lookupdHTTPAddresses: values['--lookupd'],
  lookupdPollInterval: 1,
  lookupdPollJitter: 0.01,
  maxInFlight: 10
})
reader.on('message', (message) => {
  process.stdout.write(message.body.toString() + '\n')
  message.finish()
})
reader.on('error', (error) => process.stderr.write(`${error}\n`))
reader.connect()
