import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Reads a broker with RocketMQ's own client, as it is told on standard input, and answers with JSON lines.
 *
 *   read TAB topic            every message of every queue, from offset 0 on
 *   key TAB topic TAB key     through the index, by a key of KEYS
 *   id TAB topic TAB id       through the index, by UNIQ_KEY
 *
 * Each answer ends with a line {"end": how many} or {"error": why}.
 */
public final class RocketReader {
  private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
  private static final int FOUND_MAX = 1000;
  private static final long PATIENCE_MS = 30_000;

  private final DefaultMQPullConsumer consumer;
  private final DefaultMQAdminExt admin;

  private RocketReader(String nameServer) throws MQClientException {
    consumer = new DefaultMQPullConsumer("ternmq_interop");
    consumer.setNamesrvAddr(nameServer);
    consumer.start();
    admin = new DefaultMQAdminExt(PATIENCE_MS);
    admin.setNamesrvAddr(nameServer);
    admin.start();
  }

  public static void main(String[] arguments) throws Exception {
    // The client's log writes to standard output, which is for answers.
    System.setOut(System.err);
    RocketReader reader = new RocketReader(arguments[0]);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      Map<String, Object> end = new LinkedHashMap<>();
      try {
        end.put("end", reader.answer(line.split("\t")));
      } catch (MQClientException nothing) {
        // An index that finds nothing is an answer too.
        boolean isEmpty = nothing.getResponseCode() == ResponseCode.NO_MESSAGE;
        end.put(isEmpty ? "end" : "error", isEmpty ? 0 : String.valueOf(nothing));
      } catch (Exception failure) {
        end.put("error", String.valueOf(failure));
      }
      OUT.println(JSON.toJSONString(end));
      OUT.flush();
    }
    System.exit(0);
  }

  private int answer(String[] words) throws Exception {
    switch (words[0]) {
      case "read":
        return readAll(words[1]);
      case "key":
        return show(admin.queryMessage(words[1], words[2], FOUND_MAX, 0, Long.MAX_VALUE).getMessageList());
      case "id":
        return show(admin.queryMessageByUniqKey(null, words[1], words[2], FOUND_MAX, 0, Long.MAX_VALUE).getMessageList());
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }

  private int readAll(String topic) throws Exception {
    int count = 0;
    for (MessageQueue queue : queues(topic)) {
      long end = consumer.maxOffset(queue);
      long offset = 0;
      while (offset < end) {
        PullResult page = consumer.pull(queue, "*", offset, 32);
        if (page.getPullStatus() == PullStatus.FOUND) {
          count += show(page.getMsgFoundList());
        }
        if (page.getNextBeginOffset() <= offset) {
          throw new IllegalStateException(queue + " gives nothing at " + offset + ": " + page.getPullStatus());
        }
        offset = page.getNextBeginOffset();
      }
    }
    return count;
  }

  /** A broker that has just started may not have told the name server yet. */
  private Iterable<MessageQueue> queues(String topic) throws Exception {
    long deadline = System.currentTimeMillis() + PATIENCE_MS;
    while (true) {
      try {
        return consumer.fetchSubscribeMessageQueues(topic);
      } catch (MQClientException unknown) {
        if (System.currentTimeMillis() > deadline) {
          throw unknown;
        }
        Thread.sleep(200);
      }
    }
  }

  private static int show(List<MessageExt> messages) {
    for (MessageExt message : messages) {
      Map<String, Object> line = new LinkedHashMap<>();
      line.put("topic", message.getTopic());
      line.put("queue", message.getQueueId());
      line.put("offset", message.getQueueOffset());
      line.put("position", message.getCommitLogOffset());
      line.put("body", Base64.getEncoder().encodeToString(message.getBody() == null ? new byte[0] : message.getBody()));
      line.put("tag", message.getTags() == null ? "" : message.getTags());
      line.put("keys", message.getKeys() == null ? "" : message.getKeys());
      line.put("flag", message.getFlag());
      line.put("born_ms", message.getBornTimestamp());
      line.put("stored_ms", message.getStoreTimestamp());
      Map<String, String> properties = new TreeMap<>(message.getProperties());
      // Put there by the client when it pulls.
      properties.keySet().removeAll(List.of("MIN_OFFSET", "MAX_OFFSET"));
      line.put("properties", properties);
      OUT.println(JSON.toJSONString(line));
    }
    return messages.size();
  }
}
