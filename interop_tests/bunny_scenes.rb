# Scenes for Bunny, run by test_bunny.py: ruby bunny_scenes.rb SCENE BROKER-PORT WIRE-PORT NAME

require "bunny"
require "timeout"

SCENE, BROKER_PORT, WIRE_PORT, NAME = ARGV
PATIENCE_S = 30
$stdout.sync = true

def ask(what)
  puts "ask #{what}"
  $stdin.gets
end

def check(wanted, got)
  raise "wanted #{wanted.inspect}, got #{got.inspect}" unless wanted == got
end

def connect(port = BROKER_PORT, **options)
  Bunny.new(host: "127.0.0.1", port: port.to_i, logger: Logger.new($stdout, level: Logger::FATAL), **options).start
end

def eventually
  Timeout.timeout(PATIENCE_S) { sleep 0.01 until yield }
end

def publish(channel, queue, numbers)
  numbers.each { |number| channel.default_exchange.publish(number.to_s, routing_key: queue.name, persistent: true) }
  check true, channel.wait_for_confirms
end

# The code of the exception that something ends with.
def code_of(error)
  yield
  raise "nothing was raised"
rescue error => raised
  raised.channel_close.reply_code
end

SCENES = {
  "declare" => lambda do
    connection = connect
    channel = connection.create_channel
    channel.confirm_select
    exchange = channel.topic(NAME, durable: true)
    source = channel.fanout("#{NAME}-source", auto_delete: true)
    queue = channel.queue(NAME, durable: true, arguments: { "x-max-length" => 100, "x-message-ttl" => 60_000 })
    queue.bind(exchange, routing_key: "a.#")
    exchange.bind(source)
    %w[a b a.b].each { |key| source.publish(key, routing_key: key) }
    channel.wait_for_confirms
    check [2, 0], queue.status.values_at(:message_count, :consumer_count)
    check ["a", "a.b"], [queue.pop[2], queue.pop[2]]
    check [nil, nil, nil], queue.pop
    exchange.publish("c", routing_key: "a")
    queue.purge
    queue.unbind(exchange, routing_key: "a.#")
    queue.delete
    exchange.delete
    check false, connection.queue_exists?(NAME)
    connection.close
  end,

  "confirms" => lambda do
    connection = connect
    channel = connection.create_channel
    channel.confirm_select
    queue = channel.queue(NAME, durable: true)
    publish(channel, queue, 0...1000)
    check 1000, queue.message_count
    limited = channel.queue("", exclusive: true, arguments: { "x-max-length" => 1, "x-overflow" => "reject-publish" })
    2.times { channel.default_exchange.publish("", routing_key: limited.name) }
    check false, channel.wait_for_confirms
    check 1, channel.nacked_set.size
    connection.close
  end,

  "prefetch" => lambda do
    connection = connect
    channel = connection.create_channel
    channel.confirm_select
    queue = channel.queue(NAME)
    publish(channel, queue, 0...10)
    channel.prefetch(4)
    got = Queue.new
    queue.subscribe(manual_ack: true) { |delivery, _, body| got << [delivery, body] }
    held = Array.new(4) { got.pop }
    check 6, queue.message_count
    check 0, got.size
    channel.ack(held[3][0].delivery_tag, true)
    held = Array.new(4) { got.pop }
    check %w[4 5 6 7], held.map(&:last)
    channel.nack(held[0][0].delivery_tag, false, true)
    delivery, body = got.pop
    check ["4", true], [body, delivery.redelivered?]
    channel.reject(held[1][0].delivery_tag, false)
    check "8", got.pop.last
    connection.close
  end,

  "properties" => lambda do
    connection = connect
    channel = connection.create_channel
    queue = channel.queue("", exclusive: true)
    headers = { "text" => "ü".b, "small" => 7, "negative" => -129, "large" => 2**40, "fraction" => 0.25, "yes" => true, "nothing" => nil,
                "list" => [1, "two", [3]], "table" => { "deep" => { "er" => 1 } }, "time" => Time.at(1_700_000_000) }
    properties = { content_type: "text/plain", content_encoding: "utf-8", priority: 4, correlation_id: "c", reply_to: "r", expiration: "60000",
                   message_id: "m", timestamp: 1_700_000_000, type: "t", user_id: "guest", app_id: "a" }
    body = "large" * 200_000
    queue.publish(body, persistent: true, headers: headers, **properties)
    found = nil
    eventually { (found = queue.pop)[2] }
    check body, found[2]
    check headers, found[1].headers
    properties.each { |key, value| check [key, value], [key, key == :timestamp ? found[1][key].to_i : found[1][key]] }
    check 2, found[1].delivery_mode
    connection.close
  end,

  # Bunny repairs the connection, the channel and the consumer itself.
  "redelivery" => lambda do
    connection = connect(WIRE_PORT, network_recovery_interval: 0.2)
    channel = connection.create_channel
    channel.confirm_select
    queue = channel.queue(NAME, durable: true)
    got = Queue.new
    queue.subscribe(manual_ack: true) { |delivery, _, body| got << [delivery, body] }
    publish(channel, queue, 0...3)
    held = Array.new(3) { got.pop }
    channel.ack(held[1][0].delivery_tag)
    queue.message_count
    ask "cut"
    again = Array.new(2) { got.pop }
    check [["0", true], ["2", true]], again.map { |delivery, body| [body, delivery.redelivered?] }
    channel.ack(again[1][0].delivery_tag, true)
    connection.close
  end,

  "returned" => lambda do
    connection = connect
    channel = connection.create_channel
    channel.confirm_select
    exchange = channel.default_exchange
    back = Queue.new
    exchange.on_return { |returned, _, body| back << [returned.reply_code, returned.reply_text, body] }
    exchange.publish("to nobody", routing_key: NAME, mandatory: true)
    check true, channel.wait_for_confirms
    check [312, "NO_ROUTE", "to nobody"], back.pop
    connection.close
  end,

  "errors" => lambda do
    connection = connect
    connection.create_channel.queue(NAME, exclusive: true)
    other = connect
    check 404, code_of(Bunny::NotFound) { connection.create_channel.queue("#{NAME}-missing", passive: true) }
    check 406, code_of(Bunny::PreconditionFailed) { connection.create_channel.queue(NAME, exclusive: true, arguments: { "x-max-length" => 1 }) }
    check 403, code_of(Bunny::AccessRefused) { connection.create_channel.queue("amq.mine") }
    check 405, code_of(Bunny::ResourceLocked) { other.create_channel.queue(NAME, passive: true) }
    begin
      connect(password: "wrong")
      raise "a wrong password was accepted"
    rescue Bunny::AuthenticationFailureError => error
      check "guest", error.username
    end
    other.close
    connection.close
  end,

  "cancelled" => lambda do
    connection = connect
    channel = connection.create_channel
    queue = channel.queue(NAME)
    told = Queue.new
    queue.subscribe(on_cancellation: ->(cancel) { told << cancel.consumer_tag }, consumer_tag: "mine") {}
    connection.create_channel.queue_delete(NAME)
    check "mine", told.pop
    connection.close
  end,

  # Everything is declared, bound and consumed again by Bunny, including a queue that did not survive.
  "restart" => lambda do |how|
    connection = connect(network_recovery_interval: 0.2, recovery_attempts: 100)
    recovered = Queue.new
    connection.after_recovery_completed { recovered << true }
    channel = connection.create_channel
    channel.confirm_select
    queue = channel.queue(NAME, durable: true)
    private_queue = channel.queue("", exclusive: true)
    publish(channel, queue, 0...20)
    ask how
    recovered.pop
    check 20, queue.message_count
    bodies = []
    heard = Queue.new
    private_queue.subscribe { |_, _, body| heard << body }
    channel.default_exchange.publish("still here", routing_key: private_queue.name)
    check "still here", heard.pop
    # One at a time: Bunny 2.19 cannot count a confirm of several messages on a channel that it has recovered.
    (20...25).each { |number| publish(channel, queue, [number]) }
    queue.subscribe(manual_ack: true) do |delivery, _, body|
      bodies << body.to_i
      channel.ack(delivery.delivery_tag)
    end
    eventually { bodies.size == 25 }
    check (0...25).to_a, bodies
    connection.close
  end,
}

how = %w[terminate kill].include?(SCENE) ? [SCENE] : []
Timeout.timeout(PATIENCE_S) { SCENES.fetch(how.empty? ? SCENE : "restart").call(*how) }
