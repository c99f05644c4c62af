import com.rabbitmq.client.*;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;

/** Scenes for RabbitMQ's Java client, run by test_java.py: java JavaScenes SCENE BROKER-PORT WIRE-PORT NAME */
public class JavaScenes {
    static final long PATIENCE_MS = 30_000;
    static final BufferedReader ANSWERS = new BufferedReader(new InputStreamReader(System.in));
    static int brokerPort, wirePort;
    static String name;

    interface Action { void run() throws Exception; }

    /** A consumer that keeps what it gets. */
    static class Keeper extends DefaultConsumer {
        final BlockingQueue<GetResponse> got = new LinkedBlockingQueue<>();
        final CountDownLatch cancelled = new CountDownLatch(1);

        Keeper(Channel channel) { super(channel); }

        @Override public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
            got.add(new GetResponse(envelope, properties, body, 0));
        }

        @Override public void handleCancel(String tag) { cancelled.countDown(); }

        GetResponse next() throws Exception {
            GetResponse message = got.poll(PATIENCE_MS, TimeUnit.MILLISECONDS);
            if (message == null) throw new AssertionError("nothing came");
            return message;
        }

        List<String> next(int count) throws Exception {
            List<String> bodies = new ArrayList<>();
            while (bodies.size() < count) bodies.add(text(next()));
            return bodies;
        }
    }

    static void ask(String what) throws Exception {
        System.out.println("ask " + what);
        ANSWERS.readLine();
    }

    static void check(Object wanted, Object got) {
        if (!Objects.deepEquals(wanted, got)) throw new AssertionError("wanted " + wanted + ", got " + got);
    }

    static ConnectionFactory factory(int port) {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost("127.0.0.1");
        factory.setPort(port);
        factory.setNetworkRecoveryInterval(200);
        return factory;
    }

    static byte[] bytes(String text) { return text.getBytes(StandardCharsets.UTF_8); }

    static String text(GetResponse message) { return new String(message.getBody(), StandardCharsets.UTF_8); }

    static List<String> numbers(int first, int last) {
        List<String> texts = new ArrayList<>();
        for (int number = first; number < last; number++) texts.add("" + number);
        return texts;
    }

    static void publish(Channel channel, String queue, int first, int last) throws Exception {
        for (String number : numbers(first, last)) channel.basicPublish("", queue, MessageProperties.PERSISTENT_TEXT_PLAIN, bytes(number));
        channel.waitForConfirmsOrDie(PATIENCE_MS);
    }

    /** A connection that the broker may close. */
    static Connection fragile() throws Exception {
        ConnectionFactory factory = factory(brokerPort);
        factory.setAutomaticRecoveryEnabled(false);
        return factory.newConnection();
    }

    /** The code of the close that an action ends with. */
    static int codeOf(Action action) throws Exception {
        try {
            action.run();
        } catch (IOException | AlreadyClosedException error) {
            Throwable cause = error instanceof AlreadyClosedException ? error : error.getCause();
            Method reason = ((ShutdownSignalException) cause).getReason();
            return reason instanceof AMQP.Channel.Close ? ((AMQP.Channel.Close) reason).getReplyCode() : ((AMQP.Connection.Close) reason).getReplyCode();
        }
        throw new AssertionError("nothing was thrown");
    }

    static void declare() throws Exception {
        try (Connection connection = factory(brokerPort).newConnection()) {
            Channel channel = connection.createChannel();
            channel.confirmSelect();
            channel.exchangeDeclare(name, BuiltinExchangeType.HEADERS, true);
            Map<String, Object> limits = new HashMap<>();
            limits.put("x-max-length", 10);
            limits.put("x-queue-mode", "lazy");
            channel.queueDeclare(name, true, false, false, limits);
            Map<String, Object> match = new HashMap<>();
            match.put("x-match", "any");
            match.put("colour", "red");
            match.put("size", 3);
            channel.queueBind(name, name, "", match);
            for (String colour : new String[] {"red", "blue"}) {
                Map<String, Object> headers = Collections.singletonMap("colour", colour);
                channel.basicPublish(name, "", new AMQP.BasicProperties.Builder().headers(headers).build(), bytes(colour));
            }
            channel.waitForConfirmsOrDie(PATIENCE_MS);
            check(1, channel.queueDeclarePassive(name).getMessageCount());
            check("red", text(channel.basicGet(name, true)));
            check(null, channel.basicGet(name, true));
            channel.queueUnbind(name, name, "", match);
            check(0, channel.queueDelete(name).getMessageCount());
            channel.exchangeDelete(name);
        }
    }

    static void confirms() throws Exception {
        try (Connection connection = factory(brokerPort).newConnection()) {
            Channel channel = connection.createChannel();
            channel.confirmSelect();
            channel.queueDeclare(name, true, false, false, null);
            publish(channel, name, 0, 1000);
            check(1000L, channel.messageCount(name));
            Map<String, Object> limits = new HashMap<>();
            limits.put("x-max-length", 1);
            limits.put("x-overflow", "reject-publish");
            String limited = channel.queueDeclare("", false, true, true, limits).getQueue();
            channel.basicPublish("", limited, null, bytes("fits"));
            check(true, channel.waitForConfirms(PATIENCE_MS));
            channel.basicPublish("", limited, null, bytes("does not"));
            check(false, channel.waitForConfirms(PATIENCE_MS));
        }
    }

    static void prefetch() throws Exception {
        try (Connection connection = factory(brokerPort).newConnection()) {
            Channel channel = connection.createChannel();
            channel.confirmSelect();
            channel.queueDeclare(name, false, false, false, null);
            publish(channel, name, 0, 10);
            channel.basicQos(4);
            Keeper keeper = new Keeper(channel);
            channel.basicConsume(name, false, keeper);
            check(numbers(0, 4), keeper.next(4));
            check(6L, channel.messageCount(name));
            check(0, keeper.got.size());
            channel.basicAck(4, true);
            check(numbers(4, 8), keeper.next(4));
            channel.basicNack(5, false, true);
            GetResponse again = keeper.next();
            check("4", text(again));
            check(true, again.getEnvelope().isRedeliver());
            channel.basicReject(6, false);
            check("8", text(keeper.next()));
        }
    }

    static void properties() throws Exception {
        try (Connection connection = factory(brokerPort).newConnection()) {
            Channel channel = connection.createChannel();
            String queue = channel.queueDeclare().getQueue();
            Map<String, Object> headers = new HashMap<>();
            headers.put("small", 7);
            headers.put("short", (short) -2);
            headers.put("byte", (byte) 3);
            headers.put("large", 1L << 40);
            headers.put("fraction", 0.25);
            headers.put("float", 0.5f);
            headers.put("yes", true);
            headers.put("nothing", null);
            headers.put("decimal", new java.math.BigDecimal("3.14"));
            headers.put("time", new Date(1_700_000_000_000L));
            headers.put("list", Arrays.asList(1, 2L, Arrays.asList(true)));
            headers.put("table", Collections.singletonMap("deep", Collections.singletonMap("er", 1)));
            AMQP.BasicProperties sent = new AMQP.BasicProperties("text/plain", "utf-8", headers, 2, 4, "c", "r", "60000", "m", new Date(1_700_000_000_000L), "t",
                                                                 "guest", "a", null);
            byte[] body = new byte[1_000_000];
            new Random(1).nextBytes(body);
            channel.basicPublish("", queue, sent, body);
            Keeper keeper = new Keeper(channel);
            channel.basicConsume(queue, true, keeper);
            GetResponse message = keeper.next();
            check(true, Arrays.equals(body, message.getBody()));
            check(headers, message.getProps().getHeaders());
            check(sent.builder().headers(null).build().toString(), message.getProps().builder().headers(null).build().toString());
        }
    }

    /** The client repairs the connection, the channel and the consumer itself. */
    static void redelivery() throws Exception {
        try (Connection connection = factory(wirePort).newConnection()) {
            Channel channel = connection.createChannel();
            channel.confirmSelect();
            channel.queueDeclare(name, true, false, false, null);
            publish(channel, name, 0, 3);
            Keeper keeper = new Keeper(channel);
            channel.basicConsume(name, false, keeper);
            check(numbers(0, 3), keeper.next(3));
            channel.basicAck(2, false);
            channel.messageCount(name);
            ask("cut");
            for (String wanted : new String[] {"0", "2"}) {
                GetResponse again = keeper.next();
                check(wanted, text(again));
                check(true, again.getEnvelope().isRedeliver());
                channel.basicAck(again.getEnvelope().getDeliveryTag(), false);
            }
        }
    }

    static void returned() throws Exception {
        try (Connection connection = factory(brokerPort).newConnection()) {
            Channel channel = connection.createChannel();
            channel.confirmSelect();
            List<String> back = new CopyOnWriteArrayList<>();
            channel.addReturnListener((code, text, exchange, key, properties, body) -> back.add(code + " " + text + " " + key));
            channel.basicPublish("", name, true, null, bytes("to nobody"));
            channel.waitForConfirmsOrDie(PATIENCE_MS);
            check(Collections.singletonList("312 NO_ROUTE " + name), back);
        }
    }

    static void errors() throws Exception {
        try (Connection connection = factory(brokerPort).newConnection(); Connection other = factory(brokerPort).newConnection()) {
            connection.createChannel().queueDeclare(name, false, true, false, null);
            check(404, codeOf(() -> connection.createChannel().queueDeclarePassive(name + "-missing")));
            check(406, codeOf(() -> connection.createChannel().queueDeclare(name, false, true, true, null)));
            check(403, codeOf(() -> connection.createChannel().queueDeclare("amq.mine", false, false, false, null)));
            check(405, codeOf(() -> other.createChannel().queueDeclarePassive(name)));
            check(540, codeOf(() -> fragile().createChannel().basicQos(1, 1, false)));
        }
        ConnectionFactory wrong = factory(brokerPort);
        wrong.setPassword("wrong");
        try {
            wrong.newConnection();
            throw new AssertionError("a wrong password was accepted");
        } catch (AuthenticationFailureException error) {
            check(true, error.getMessage().contains("ACCESS_REFUSED"));
        }
    }

    static void cancelled() throws Exception {
        try (Connection connection = factory(brokerPort).newConnection()) {
            Channel channel = connection.createChannel();
            channel.queueDeclare(name, false, false, false, null);
            Keeper keeper = new Keeper(channel);
            channel.basicConsume(name, false, keeper);
            connection.createChannel().queueDelete(name);
            check(true, keeper.cancelled.await(PATIENCE_MS, TimeUnit.MILLISECONDS));
        }
    }

    /** The client's own request and answer, over direct reply-to. */
    static void rpc() throws Exception {
        try (Connection connection = factory(brokerPort).newConnection(); Connection other = factory(brokerPort).newConnection()) {
            Channel serving = other.createChannel();
            serving.queueDeclare(name, false, false, true, null);
            RpcServer server = new StringRpcServer(serving, name) {
                @Override public String handleStringCall(String request, AMQP.BasicProperties properties) { return request.toUpperCase(); }
            };
            Thread loop = new Thread(() -> {
                try { server.mainloop(); } catch (Exception error) { error.printStackTrace(); }
            });
            loop.start();
            RpcClient client = new RpcClient(connection.createChannel(), "", name, (int) PATIENCE_MS);
            check("HELLO", client.stringCall("hello"));
            check("AGAIN", client.stringCall("again"));
            server.terminateMainloop();
        }
    }

    /** Everything is declared, bound and consumed again by the client, including what did not survive. */
    static void restart(String how) throws Exception {
        try (Connection connection = factory(brokerPort).newConnection()) {
            CountDownLatch recovered = new CountDownLatch(1);
            ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
                @Override public void handleRecovery(Recoverable what) { recovered.countDown(); }
                @Override public void handleRecoveryStarted(Recoverable what) { }
            });
            Channel channel = connection.createChannel();
            channel.confirmSelect();
            channel.exchangeDeclare(name, "fanout", false, true, null);
            channel.queueDeclare(name, true, false, false, null);
            channel.queueBind(name, name, "");
            publish(channel, name, 0, 20);
            channel.basicQos(5);
            Keeper keeper = new Keeper(channel);
            channel.basicConsume(name, false, keeper);
            check(numbers(0, 5), keeper.next(5));
            ask(how);
            check(true, recovered.await(PATIENCE_MS, TimeUnit.MILLISECONDS));
            channel.basicPublish(name, "", MessageProperties.PERSISTENT_BASIC, bytes("20"));
            channel.waitForConfirmsOrDie(PATIENCE_MS);
            List<String> bodies = new ArrayList<>();
            while (bodies.size() < 21) {
                GetResponse message = keeper.next();
                bodies.add(text(message));
                channel.basicAck(message.getEnvelope().getDeliveryTag(), false);
            }
            check(numbers(0, 21), bodies);
        }
    }

    public static void main(String[] words) {
        brokerPort = Integer.parseInt(words[1]);
        wirePort = Integer.parseInt(words[2]);
        name = words[3];
        try {
            switch (words[0]) {
                case "declare": declare(); break;
                case "confirms": confirms(); break;
                case "prefetch": prefetch(); break;
                case "properties": properties(); break;
                case "redelivery": redelivery(); break;
                case "returned": returned(); break;
                case "errors": errors(); break;
                case "cancelled": cancelled(); break;
                case "rpc": rpc(); break;
                case "terminate": case "kill": restart(words[0]); break;
                default: throw new AssertionError("no such scene");
            }
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }
}
