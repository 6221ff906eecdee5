#include "server/http_server.h"

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <csignal>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "base/log.h"
#include "server/http_message.h"

namespace masu {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr size_t kReadSize = 64u << 10;
// What a client may send ahead of its answers. Above that the read pauses, and with it the notice
// of a disconnect, until the current answer is complete.
constexpr size_t kPipelineLimit = 256u << 10;
// Unsent bytes above which no further pipelined request is begun.
constexpr size_t kPipelineOutputLimit = 1u << 20;
// How long a client may go on sending after its last answer before it is reset: closing at once,
// with bytes unread, would destroy the answer on its way.
constexpr std::chrono::seconds kLinger{2};
constexpr std::chrono::milliseconds kTick{250};

class IoExecutor : public Executor {
 public:
  explicit IoExecutor(asio::io_context& context) : context_(&context) {}
  void Post(std::function<void()> work) override {
    std::lock_guard lock(mutex_);
    if (context_ != nullptr) asio::post(*context_, std::move(work));
  }
  void Close() {
    std::lock_guard lock(mutex_);
    context_ = nullptr;
  }

 private:
  std::mutex mutex_;
  asio::io_context* context_;
};

class Connection;

// What connections need of the server. I/O thread only.
struct Core {
  HttpOptions options;
  HttpHandler handler;
  HttpServer::ErrorBody error_body;
  std::shared_ptr<IoExecutor> executor;
  std::unordered_set<std::shared_ptr<Connection>> connections;
  uint64_t body_bytes = 0;  // of all connections
  bool stopping = false;
};

// One client. I/O thread only. Reading, parsing and writing are separate loops: the read is pending
// even while an answer is being made, and what arrives then waits in `in_`.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Core& core) : socket_(std::move(socket)), core_(core) {}

  void Start() {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.set_option(asio::socket_base::send_buffer_size(core_.options.socket_send_buffer),
                       ignored);
    Read();
  }

  // Calls from an exchange; `number` tells late calls of an earlier one apart.
  void Send(uint64_t number, const HttpResponse& response) {
    if (!IsCurrent(number, State::kAnswering)) return;
    Account(0);
    if (core_.stopping) framing_.keep_alive = false;
    Queue(SerializeResponse(response, framing_));
    AnswerDone();
  }
  void StartStream(uint64_t number, int status, const std::string& type,
                   const HttpHeaders& headers) {
    if (!IsCurrent(number, State::kAnswering)) return;
    Account(0);
    if (framing_.http_1_0 || core_.stopping) framing_.keep_alive = false;
    state_ = State::kStreaming;
    Queue(SerializeStreamHead(status, type, headers, framing_));
  }
  void Write(uint64_t number, const std::string& data) {
    if (!IsCurrent(number, State::kStreaming) || framing_.head) return;
    Queue(framing_.http_1_0 ? data : ChunkOf(data));
    if (Unsent() > core_.options.stream_buffer_limit) {
      LogWarning("a client reads too slowly: {} bytes of its stream wait; disconnected", Unsent());
      Close();
    }
  }
  void Finish(uint64_t number) {
    if (!IsCurrent(number, State::kStreaming)) return;
    if (!framing_.http_1_0 && !framing_.head) Queue(std::string(kLastChunk));
    AnswerDone();
  }
  void OnDisconnect(uint64_t number, std::function<void()> callback) {
    if (number != number_) return;
    if (closed_) return callback();
    if (state_ == State::kAnswering || state_ == State::kStreaming) {
      on_disconnect_ = std::move(callback);
    }
  }

  void CheckTimeouts(Clock::time_point now) {
    const HttpOptions& options = core_.options;
    if (Unsent() > 0 && now - last_progress_ > options.write_timeout) return Close();
    if (state_ == State::kLingering && now > linger_until_) return Close();
    if (state_ != State::kReading || Unsent() > 0) return;
    if (parser_ && now - request_start_ > options.request_timeout) {
      Refuse(408, "the request did not arrive in time");
    } else if (!parser_ && now - last_progress_ > options.idle_timeout) {
      Close();
    }
  }

  // The server stops: idle connections close now, others after their answer.
  void BeginStop() {
    framing_.keep_alive = false;
    if (state_ == State::kReading && Unsent() == 0) Close();
    close_after_flush_ = close_after_flush_ || state_ == State::kReading;
  }

  void Close() {
    if (closed_) return;
    closed_ = true;
    Account(0);
    error_code ignored;
    socket_.close(ignored);
    auto callback = std::move(on_disconnect_);
    on_disconnect_ = nullptr;
    const auto self = shared_from_this();
    core_.connections.erase(self);
    if (callback) callback();
  }

 private:
  enum class State { kReading, kAnswering, kStreaming, kLingering };

  bool IsCurrent(uint64_t number, State state) const {
    return !closed_ && number == number_ && state == state_;
  }
  size_t Unsent() const { return sending_.size() - sent_ + queued_.size(); }

  void Read() {
    if (reading_ || closed_ || saw_end_) return;
    if (state_ != State::kReading && in_.size() >= kPipelineLimit) return;
    reading_ = true;
    socket_.async_read_some(in_.prepare(kReadSize),
                            [self = shared_from_this()](error_code error, size_t count) {
                              self->reading_ = false;
                              self->OnRead(error, count);
                            });
  }

  void OnRead(error_code error, size_t count) {
    if (closed_) return;
    if (error == asio::error::eof && state_ == State::kReading && Unsent() > 0) {
      saw_end_ = true;  // the last answer is complete and may still be read
      close_after_flush_ = true;
      return;
    }
    if (error) return Close();
    in_.commit(count);
    last_progress_ = Clock::now();
    if (state_ == State::kLingering) in_.consume(in_.size());
    Parse();
    Read();
  }

  void Parse() {
    while (!closed_ && state_ == State::kReading && !close_after_flush_ && in_.size() > 0 &&
           Unsent() < kPipelineOutputLimit) {
      if (!parser_) BeginRequest();
      error_code error;
      const size_t consumed = parser_->put(in_.data(), error);
      in_.consume(consumed);
      if (error == http::error::need_more) error = {};
      if (error) return RefuseParse(error);
      Account(parser_->get().body().size());
      if (core_.body_bytes > core_.options.total_body_limit) {
        return Refuse(503, "too many large requests at once; try again later");
      }
      if (parser_->is_done()) {
        Dispatch();
        continue;
      }
      if (parser_->is_header_done()) AnswerExpectation();
      if (consumed == 0) return;
    }
  }

  void BeginRequest() {
    parser_.emplace();
    parser_->eager(true);
    parser_->body_limit(core_.options.body_limit);
    parser_->header_limit(core_.options.header_limit);
    request_start_ = Clock::now();
    continue_sent_ = false;
  }

  void AnswerExpectation() {
    if (continue_sent_) return;
    continue_sent_ = true;
    if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
      Queue("HTTP/1.1 100 Continue\r\n\r\n");
    }
  }

  void RefuseParse(error_code error) {
    if (error == http::error::body_limit) {
      return Refuse(413, fmt::format("the request body is larger than the limit of {} bytes",
                                     core_.options.body_limit));
    }
    if (error == http::error::header_limit) {
      return Refuse(431, fmt::format("the request headers are larger than the limit of {} bytes",
                                     core_.options.header_limit));
    }
    Refuse(400, "malformed HTTP request: " + error.message());
  }

  // Answers with an error and lets the client send on for a moment, so that it can read it.
  void Refuse(int status, const std::string& message) {
    parser_.reset();
    Account(0);
    framing_ = MessageFraming{.keep_alive = false};
    HttpResponse response{.status = status, .body = core_.error_body(status, message)};
    if (status == 503) response.headers.emplace_back("Retry-After", "1");
    Queue(SerializeResponse(response, framing_));
    in_.consume(in_.size());
    state_ = State::kLingering;
    linger_until_ = Clock::now() + kLinger;
    close_after_flush_ = true;
    Flush();
  }

  // The share of this connection in core_.body_bytes, from the first byte of a body until its
  // answer begins.
  void Account(uint64_t bytes) {
    core_.body_bytes += bytes - accounted_;
    accounted_ = bytes;
  }

  void Dispatch();  // below, since it makes an Exchange

  void AnswerDone() {
    on_disconnect_ = nullptr;
    state_ = State::kReading;
    last_progress_ = Clock::now();
    if (!framing_.keep_alive) close_after_flush_ = true;
    Flush();
    if (closed_) return;
    Parse();
    Read();
  }

  void Queue(std::string_view data) {
    if (Unsent() == 0) last_progress_ = Clock::now();
    queued_.append(data);
    Flush();
  }

  void Flush() {
    if (writing_ || closed_) return;
    if (sent_ == sending_.size()) {
      sending_.clear();
      sent_ = 0;
      sending_.swap(queued_);
    }
    if (sending_.empty()) return Flushed();
    writing_ = true;
    socket_.async_write_some(asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
                             [self = shared_from_this()](error_code error, size_t count) {
                               self->writing_ = false;
                               if (self->closed_) return;
                               if (error) return self->Close();
                               self->sent_ += count;
                               self->last_progress_ = Clock::now();
                               self->Flush();
                               if (self->Unsent() < kPipelineOutputLimit) self->Parse();
                             });
  }

  void Flushed() {
    if (!close_after_flush_ || (state_ != State::kReading && state_ != State::kLingering)) return;
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    if (saw_end_ || core_.stopping) return Close();
    state_ = State::kLingering;
    linger_until_ = Clock::now() + kLinger;
    in_.consume(in_.size());
    Read();
  }

  tcp::socket socket_;
  Core& core_;
  State state_ = State::kReading;
  beast::flat_buffer in_;
  std::optional<http::request_parser<http::string_body>> parser_;  // set while a request arrives
  std::string sending_;                                            // being written, from sent_ on
  size_t sent_ = 0;
  std::string queued_;  // to be written after sending_
  MessageFraming framing_;
  uint64_t number_ = 0;  // of the current exchange
  uint64_t accounted_ = 0;
  std::function<void()> on_disconnect_;
  bool reading_ = false;
  bool writing_ = false;
  bool closed_ = false;
  bool saw_end_ = false;
  bool continue_sent_ = false;
  bool close_after_flush_ = false;
  Clock::time_point request_start_ = Clock::now();
  Clock::time_point last_progress_ = Clock::now();
  Clock::time_point linger_until_;
};

// Hands every call over to the I/O thread. Holds the connection weakly and looks at it there only,
// so that an exchange may outlive the server.
class Exchange : public HttpExchange {
 public:
  Exchange(std::weak_ptr<Connection> connection, std::shared_ptr<Executor> executor,
           uint64_t number)
      : connection_(std::move(connection)), executor_(std::move(executor)), number_(number) {}
  ~Exchange() override {
    if (!answered_) Send({.status = 500, .content_type = "text/plain", .body = "no answer\n"});
  }

  void Send(HttpResponse response) override {
    answered_ = true;
    Call([response = std::move(response), number = number_](Connection& connection) {
      connection.Send(number, response);
    });
  }
  void StartStream(int status, std::string type, HttpHeaders headers) override {
    answered_ = true;
    Call([status, type = std::move(type), headers = std::move(headers), number = number_](
             Connection& connection) { connection.StartStream(number, status, type, headers); });
  }
  void Write(std::string data) override {
    Call([data = std::move(data), number = number_](Connection& connection) {
      connection.Write(number, data);
    });
  }
  void Finish() override {
    Call([number = number_](Connection& connection) { connection.Finish(number); });
  }
  void OnDisconnect(std::function<void()> callback) override {
    executor_->Post([weak = connection_, callback = std::move(callback), number = number_] {
      if (const auto connection = weak.lock()) {
        connection->OnDisconnect(number, callback);
      } else {
        callback();
      }
    });
  }

 private:
  template <typename Function>
  void Call(Function function) {
    executor_->Post([weak = connection_, function = std::move(function)] {
      if (const auto connection = weak.lock()) function(*connection);
    });
  }

  std::weak_ptr<Connection> connection_;
  std::shared_ptr<Executor> executor_;
  uint64_t number_;
  std::atomic<bool> answered_ = false;
};

void Connection::Dispatch() {
  auto message = parser_->release();
  parser_.reset();
  framing_ = MessageFraming{.keep_alive = message.keep_alive(),
                            .http_1_0 = message.version() == 10,
                            .head = message.method() == http::verb::head};
  const auto target = ParseTarget(std::string_view(message.target()));
  if (!target) return Refuse(400, "malformed request target");
  HttpRequest request{.method = std::string(message.method_string()),
                      .path = target->path,
                      .query = target->query,
                      .headers = {},
                      .body = std::move(message.body())};
  for (const auto& field : message) {
    request.headers.emplace_back(field.name_string(), field.value());
  }
  state_ = State::kAnswering;
  ++number_;
  core_.handler(std::move(request),
                std::make_shared<Exchange>(weak_from_this(), core_.executor, number_));
}

class BeastServer : public HttpServer {
 public:
  BeastServer(const HttpOptions& options, HttpHandler handler, ErrorBody error_body)
      : acceptor_(context_), tick_timer_(context_), accept_timer_(context_), signals_(context_) {
    core_.options = options;
    core_.handler = std::move(handler);
    core_.error_body = std::move(error_body);
    core_.executor = std::make_shared<IoExecutor>(context_);
  }
  ~BeastServer() override {
    core_.executor->Close();
    core_.connections.clear();
  }

  Result<void> Bind() {
    const HttpOptions& options = core_.options;
    // From here on a signal waits for Run: whoever has been told the port may end us at any time.
    if (options.shutdown_on_signals) WaitForSignal();
    error_code error;
    tcp::resolver resolver(context_);
    const auto found =
        resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
    if (error || found.empty()) {
      return InvalidArgument("cannot listen on host '{}': {}; use an address of this machine",
                             options.host, error.message());
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error == asio::error::address_in_use) {
      return MakeError(ErrorCode::kUnavailable,
                       "port {} on {} is in use by another process; stop it or choose another port "
                       "with --port",
                       options.port, options.host);
    }
    if (error) {
      return MakeError(ErrorCode::kUnavailable, "cannot listen on {}:{}: {}", options.host,
                       options.port, error.message());
    }
    port_ = acceptor_.local_endpoint(error).port();
    return {};
  }

  uint16_t port() const override { return port_; }
  std::shared_ptr<Executor> executor() const override { return core_.executor; }
  void SetTick(std::function<void()> tick) override { tick_ = std::move(tick); }
  void SetOnStop(std::function<void()> on_stop) override { on_stop_ = std::move(on_stop); }
  void SetDrain(Drain drain) override { drain_ = std::move(drain); }

  void Run() override {
    Accept();
    Tick();
    while (!context_.stopped()) {
      // A handler that throws (bad_alloc, say) loses its own request, not the server.
      try {
        context_.run();
      } catch (const std::exception& exception) {
        LogError("contained an exception on the I/O thread: {}", exception.what());
      }
    }
    core_.executor->Close();
    const auto connections = std::move(core_.connections);
    core_.connections.clear();
    for (const auto& connection : connections) connection->Close();
  }

  void Stop() override {
    core_.executor->Post([this] { BeginStop(); });
  }
  void Shutdown() override {
    core_.executor->Post([this] { BeginShutdown(); });
  }

 private:
  void Accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (core_.stopping || error == asio::error::operation_aborted) return;
      if (error) {  // out of file descriptors: try again when some may be free
        accept_timer_.expires_after(std::chrono::milliseconds(100));
        accept_timer_.async_wait([this](error_code) {
          if (!core_.stopping) Accept();
        });
        return;
      }
      if (core_.connections.size() < core_.options.max_connections) {
        auto connection = std::make_shared<Connection>(std::move(socket), core_);
        core_.connections.insert(connection);
        connection->Start();
      } else {
        LogWarning("refused a connection: {} are open, which is the limit",
                   core_.connections.size());
      }
      Accept();
    });
  }

  void Tick() {
    tick_timer_.expires_after(kTick);
    tick_timer_.async_wait([this](error_code error) {
      if (error) return;
      const auto now = Clock::now();
      const auto connections = core_.connections;  // closing changes the set
      for (const auto& connection : connections) connection->CheckTimeouts(now);
      if (tick_) tick_();
      if (drain_deadline_) CheckDrain(now);
      if (core_.stopping && (core_.connections.empty() || now > stop_deadline_)) {
        context_.stop();
        return;
      }
      Tick();
    });
  }

  void WaitForSignal() {
    error_code ignored;
    signals_.add(SIGINT, ignored);
    signals_.add(SIGTERM, ignored);
    AwaitSignal();
  }

  void AwaitSignal() {
    signals_.async_wait([this](error_code error, int signal) {
      if (error) return;
      LogInfo("{}: stopping", signal == SIGINT ? "interrupted" : "terminated");
      BeginShutdown();
      if (!core_.stopping) AwaitSignal();
    });
  }

  void CheckDrain(Clock::time_point now) {
    const bool drained = IsDrained();
    if (!drained && now <= *drain_deadline_) return;
    if (!drained) LogWarning("requests still run after --shutdown-timeout: they end with an error");
    BeginStop();
  }

  bool IsDrained() const { return !drain_.is_done || drain_.is_done(); }

  void BeginShutdown() {
    const std::chrono::seconds timeout = core_.options.shutdown_timeout;
    if (core_.stopping) return;
    if (drain_deadline_ || timeout.count() == 0 || IsDrained()) return BeginStop();
    LogInfo("finishing the requests that run, for up to {} s; a second signal stops at once",
            timeout.count());
    drain_deadline_ = Clock::now() + timeout;
    if (drain_.begin) drain_.begin();
  }

  void BeginStop() {
    if (core_.stopping) return;
    core_.stopping = true;
    drain_deadline_.reset();
    stop_deadline_ = Clock::now() + core_.options.stop_grace;
    error_code ignored;
    acceptor_.close(ignored);
    if (on_stop_) on_stop_();
    const auto connections = core_.connections;
    for (const auto& connection : connections) connection->BeginStop();
  }

  asio::io_context context_{1};
  Core core_;
  tcp::acceptor acceptor_;
  asio::steady_timer tick_timer_;
  asio::steady_timer accept_timer_;
  asio::signal_set signals_;
  std::function<void()> tick_;
  std::function<void()> on_stop_;
  Drain drain_;
  std::optional<Clock::time_point> drain_deadline_;  // while requests are waited for
  uint16_t port_ = 0;
  Clock::time_point stop_deadline_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const HttpOptions& options,
                                                       HttpHandler handler, ErrorBody error_body) {
  auto server = std::make_unique<BeastServer>(options, std::move(handler), std::move(error_body));
  MASU_TRY(server->Bind());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace masu
