// Scenes for amqplib, run by test_amqplib.py: node amqplib_scenes.js SCENE BROKER-PORT WIRE-PORT NAME

'use strict';

const assert = require('assert');
const events = require('events');
const readline = require('readline');
const amqp = require('amqplib');

const [scene, brokerPort, wirePort, name] = process.argv.slice(2);
const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const PERSISTENT = { persistent: true };

async function ask(what) {
  console.log(`ask ${what}`);
  await answers.next();
}

async function connect(port = brokerPort, password = 'guest') {
  const connection = await amqp.connect(`amqp://guest:${password}@127.0.0.1:${port}`);
  connection.on('error', () => {});
  return connection;
}

// The next messages of a queue; `settle` is called for each. What comes beyond them stays with the channel.
async function take(channel, queue, count, settle) {
  const got = [];
  let full;
  const done = new Promise((resolve) => { full = resolve; });
  const { consumerTag } = await channel.consume(queue, (message) => {
    if (got.length === count) return;
    got.push(message);
    settle(message);
    if (got.length === count) full();
  });
  await done;
  await channel.cancel(consumerTag);
  return got;
}

const bodies = (messages) => messages.map((message) => message.content.toString());
const numbers = (first, last) => Array.from({ length: last - first }, (_, k) => `${first + k}`);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function publishNumbers(channel, queue, first, last) {
  for (const number of numbers(first, last)) channel.sendToQueue(queue, Buffer.from(number), PERSISTENT);
  await channel.waitForConfirms();
}

// An error closes the channel: its code.
async function codeOf(connection, action) {
  const channel = await connection.createChannel();
  const failed = events.once(channel, 'error');
  action(channel).catch(() => {});
  return (await failed)[0].code;
}

const scenes = {
  async declare() {
    const connection = await connect();
    const channel = await connection.createConfirmChannel();
    await channel.assertExchange(name, 'topic', { durable: true, alternateExchange: `${name}-rest` });
    await channel.assertExchange(`${name}-rest`, 'fanout');
    await channel.assertQueue(name, { durable: true, messageTtl: 60000, maxLength: 10, deadLetterExchange: 'amq.fanout' });
    await channel.assertQueue(`${name}-rest`, { autoDelete: true });
    await channel.bindQueue(name, name, '*.red');
    await channel.bindQueue(`${name}-rest`, `${name}-rest`, '');
    await channel.bindExchange(`${name}-rest`, name, 'copied.#');
    for (const key of ['a.red', 'a.blue', 'copied.red']) channel.publish(name, key, Buffer.from(key));
    await channel.waitForConfirms();
    assert.deepStrictEqual(bodies([await channel.get(name), await channel.get(name)]), ['a.red', 'copied.red']);
    assert.strictEqual((await channel.checkQueue(`${name}-rest`)).messageCount, 2);
    assert.strictEqual((await channel.purgeQueue(`${name}-rest`)).messageCount, 2);
    await channel.deleteQueue(name);
    await channel.deleteExchange(name);
    await connection.close();
  },

  async confirms() {
    const connection = await connect();
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue(name);
    await publishNumbers(channel, name, 0, 1000);
    assert.strictEqual((await channel.checkQueue(name)).messageCount, 1000);
    const limited = await channel.assertQueue('', { exclusive: true, maxLength: 1, arguments: { 'x-overflow': 'reject-publish' } });
    channel.sendToQueue(limited.queue, Buffer.from('fits'));
    await channel.waitForConfirms();
    channel.sendToQueue(limited.queue, Buffer.from('does not'));
    await assert.rejects(channel.waitForConfirms(), /nacked/);
    await connection.close();
  },

  async prefetch() {
    const connection = await connect();
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue(name);
    await publishNumbers(channel, name, 0, 10);
    await channel.prefetch(3);
    const got = [];
    await channel.consume(name, (message) => got.push(message));
    while (got.length < 3) await pause(5);
    assert.strictEqual((await channel.checkQueue(name)).messageCount, 7);
    assert.strictEqual(got.length, 3);
    channel.ack(got[2], true);
    while (got.length < 6) await pause(5);
    channel.nack(got[3], false, true);
    while (got.length < 7) await pause(5);
    assert.deepStrictEqual([got[6].content.toString(), got[6].fields.redelivered], ['3', true]);
    channel.reject(got[4], false);
    channel.ackAll();
    while (got.length < 11) {
      await pause(5);
      channel.ackAll();
    }
    assert.deepStrictEqual(bodies(got.slice(7)), numbers(6, 10));
    await connection.close();
  },

  async properties() {
    const connection = await connect();
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    const headers = {
      text: 'ü', small: 7, negative: -129, large: 2 ** 40, fraction: 0.25, yes: true, nothing: null, list: [1, 'two', [3]], table: { deep: { er: 1 } },
      raw: Buffer.from([0, 255]), float: { '!': 'float', value: 0.5 }, time: { '!': 'timestamp', value: 1700000000 },
    };
    const properties = {
      contentType: 'text/plain', contentEncoding: 'utf-8', deliveryMode: 2, priority: 4, correlationId: 'c', replyTo: 'r', expiration: '60000', messageId: 'm',
      timestamp: 1700000000, type: 't', userId: 'guest', appId: 'a',
    };
    const body = Buffer.alloc(1000000, 'large');
    channel.sendToQueue(queue, body, { ...properties, headers });
    const [message] = await take(channel, queue, 1, (one) => channel.ack(one));
    assert.ok(message.content.equals(body));
    const got = message.properties;
    for (const [key, value] of Object.entries(properties)) assert.strictEqual(got[key], value, key);
    assert.strictEqual(got.headers.float, 0.5);
    assert.deepStrictEqual(got.headers.time, { '!': 'timestamp', value: 1700000000 });
    for (const key of ['text', 'small', 'negative', 'large', 'fraction', 'yes', 'nothing', 'list', 'table', 'raw']) {
      assert.deepStrictEqual(got.headers[key], headers[key], key);
    }
    await connection.close();
  },

  async redelivery() {
    const losing = await connect(wirePort);
    const channel = await losing.createConfirmChannel();
    await channel.assertQueue(name);
    await publishNumbers(channel, name, 0, 4);
    const held = await take(channel, name, 4, () => {});
    channel.ack(held[1]);
    await channel.checkQueue(name);
    const lost = new Promise((resolve) => { losing.on('close', resolve); });
    await ask('cut');
    await lost;
    const connection = await connect();
    const other = await connection.createChannel();
    const again = await take(other, name, 3, (message) => other.ack(message));
    assert.deepStrictEqual(bodies(again), ['0', '2', '3']);
    assert.ok(again.every((message) => message.fields.redelivered));
    await connection.close();
  },

  async returned() {
    const connection = await connect();
    const channel = await connection.createConfirmChannel();
    const back = events.once(channel, 'return');
    channel.sendToQueue(name, Buffer.from('to nobody'), { mandatory: true });
    const [message] = await back;
    assert.deepStrictEqual([message.fields.replyCode, message.fields.replyText, message.content.toString()], [312, 'NO_ROUTE', 'to nobody']);
    await channel.waitForConfirms();
    await connection.close();
  },

  async errors() {
    const connection = await connect();
    assert.strictEqual(await codeOf(connection, (channel) => channel.checkQueue(`${name}-missing`)), 404);
    assert.strictEqual(await codeOf(connection, (channel) => channel.assertQueue('amq.mine')), 403);
    await (await connection.createChannel()).assertQueue(name, { exclusive: true, durable: true });
    assert.strictEqual(await codeOf(connection, (channel) => channel.assertQueue(name, { exclusive: true, maxLength: 1 })), 406);
    const other = await connect();
    assert.strictEqual(await codeOf(other, (channel) => channel.checkQueue(name)), 405);
    await assert.rejects(connect(brokerPort, 'wrong'), /403/);
    await other.close();
    await connection.close();
  },

  async cancelled() {
    const connection = await connect();
    const channel = await connection.createChannel();
    await channel.assertQueue(name);
    const told = new Promise((resolve) => { channel.consume(name, resolve); });
    await (await connection.createChannel()).deleteQueue(name);
    assert.strictEqual(await told, null);
    await connection.close();
  },

  async restart(how) {
    let connection = await connect();
    let channel = await connection.createConfirmChannel();
    await channel.assertQueue(name, { durable: true });
    await publishNumbers(channel, name, 0, 100);
    await take(channel, name, 10, (message) => channel.ack(message));
    await channel.close();
    channel = await connection.createConfirmChannel();
    // Acknowledgements are written with the next change, so this makes sure of them.
    await publishNumbers(channel, name, 100, 101);
    const lost = new Promise((resolve) => { connection.on('close', resolve); });
    await ask(how);
    await lost;
    connection = await connect();
    channel = await connection.createConfirmChannel();
    await publishNumbers(channel, name, 101, 110);
    const waiting = (await channel.checkQueue(name)).messageCount;
    const got = bodies(await take(channel, name, waiting, (message) => channel.ack(message)));
    assert.deepStrictEqual(got, numbers(10, 110));
    await connection.close();
  },

  terminate: () => scenes.restart('terminate'),
  kill: () => scenes.restart('kill'),
};

scenes[scene]().then(() => process.exit(0), (error) => {
  console.log(error.stack);
  process.exit(1);
});
