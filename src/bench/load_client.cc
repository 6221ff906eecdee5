#include "bench/load_client.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <chrono>
#include <csignal>
#include <deque>
#include <memory>

#include "bench/sse_stream.h"

namespace masu {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kProgressPeriod{200};
constexpr std::chrono::seconds kGetTimeout{10};
constexpr size_t kMaxErrorBody = 64u << 10;

std::string FormatHead(const HttpTarget& target, const char* method, const std::string& path) {
  const bool ipv6 = target.host.find(':') != std::string::npos;
  std::string head = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}{}{}:{}\r\nUser-Agent: masu/{}\r\n",
                                 method, target.prefix, path, ipv6 ? "[" : "", target.host,
                                 ipv6 ? "]" : "", target.port, MASU_VERSION);
  if (!target.api_key.empty()) head += fmt::format("Authorization: Bearer {}\r\n", target.api_key);
  return head;
}

// A thousand connections are more than the soft limit of 1,024 files allows; the hard one is the
// user's.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string ConnectError(const error_code& error) {
  std::string text = "cannot connect: " + error.message();
  if (error == asio::error::no_descriptors) {
    text += "; lower --max-concurrency, or raise ulimit -n";
  }
  return text;
}

// A body that goes to a function as it arrives.
struct SinkBody {
  using value_type = std::function<void(std::string_view)>;  // NOLINT: Beast's name
  class reader {                                             // NOLINT: Beast's name
   public:
    template <bool kIsRequest, typename Fields>
    reader(http::header<kIsRequest, Fields>& /*header*/, value_type& sink) : sink_(sink) {}
    // NOLINTBEGIN(readability-identifier-naming): Beast's names
    void init(const boost::optional<uint64_t>& /*length*/, error_code& error) { error = {}; }
    template <typename Buffers>
    size_t put(const Buffers& buffers, error_code& error) {
      error = {};
      size_t size = 0;
      for (const auto buffer : beast::buffers_range_ref(buffers)) {
        sink_({static_cast<const char*>(buffer.data()), buffer.size()});
        size += buffer.size();
      }
      return size;
    }
    void finish(error_code& error) { error = {}; }
    // NOLINTEND(readability-identifier-naming)

   private:
    value_type& sink_;
  };
};

class Connection;

// A load test under way. All on the thread that calls Run.
class LoadRun {
 public:
  LoadRun(const LoadPlan& plan, tcp::resolver::results_type endpoints,
          const std::function<void(const LoadProgress&)>& progress)
      : plan_(plan), endpoints_(std::move(endpoints)), progress_(progress) {}

  LoadOutcome Run();

  // For connections.
  asio::io_context& context() { return context_; }
  const LoadPlan& plan() const { return plan_; }
  const tcp::resolver::results_type& endpoints() const { return endpoints_; }
  double Now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  void CountChunks(uint64_t chunks) { chunks_ += chunks; }
  // `connection`: to be used again; null if it is closed.
  void OnFinished(LoadRecord record, std::shared_ptr<Connection> connection);

 private:
  void AwaitArrivals();
  void AwaitProgress();
  void StartWaiting();

  const LoadPlan& plan_;
  tcp::resolver::results_type endpoints_;
  const std::function<void(const LoadProgress&)>& progress_;

  // Destroyed last, and its pending handlers with it: they hold connections.
  asio::io_context context_{1};
  asio::steady_timer arrival_timer_{context_};
  asio::steady_timer progress_timer_{context_};
  asio::signal_set signals_{context_};
  Clock::time_point begin_;

  size_t next_arrival_ = 0;     // of plan_.requests
  std::deque<size_t> waiting_;  // arrived, not sent
  std::vector<std::shared_ptr<Connection>> idle_;
  size_t running_ = 0;
  uint64_t chunks_ = 0;
  uint64_t reported_chunks_ = 0;
  LoadOutcome outcome_;
};

// One connection, which sends one request at a time.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  explicit Connection(LoadRun& run) : run_(run), socket_(run.context()) {}

  void Send(size_t index) {
    index_ = index;
    start_ = run_.Now();
    const std::string& body = run_.plan().requests[index].body;
    request_ = FormatHead(run_.plan().target, "POST", run_.plan().path) +
               fmt::format(
                   "Content-Type: application/json\r\nAccept: text/event-stream\r\n"
                   "Content-Length: {}\r\n\r\n",
                   body.size()) +
               body;
    is_reused_ = socket_.is_open();
    if (is_reused_) {
      Write();
    } else {
      Connect();
    }
  }

 private:
  void Connect() {
    socket_ = tcp::socket(run_.context());
    buffer_.clear();
    asio::async_connect(socket_, run_.endpoints(),
                        [self = shared_from_this()](error_code error, const tcp::endpoint&) {
                          if (error) return self->Fail(ConnectError(error));
                          error_code ignored;
                          self->socket_.set_option(tcp::no_delay(true), ignored);
                          self->Write();
                        });
  }

  void Write() {
    stream_ = std::make_unique<CompletionStream>(index_, start_);
    error_body_.clear();
    received_ = false;
    asio::async_write(socket_, asio::buffer(request_),
                      [self = shared_from_this()](error_code error, size_t) {
                        // A server may answer and close before it has read all: what it says is
                        // worth more than the broken pipe.
                        self->write_error_ = error;
                        self->Read();
                      });
  }

  void Read() {
    parser_.emplace();
    parser_->body_limit(boost::none);
    parser_->get().body() = [this](std::string_view data) { OnBody(data); };
    http::async_read(socket_, buffer_, *parser_,
                     [self = shared_from_this()](error_code error, size_t bytes) {
                       self->OnRead(error, bytes);
                     });
  }

  void OnBody(std::string_view data) {
    received_ = true;
    if (parser_->get().result() == http::status::ok) {
      const uint64_t before = stream_->token_chunks();
      stream_->Feed(data, run_.Now());
      run_.CountChunks(stream_->token_chunks() - before);
    } else if (error_body_.size() < kMaxErrorBody) {
      error_body_ += data;
    }
  }

  void OnRead(error_code error, size_t bytes) {
    if (error && bytes == 0 && !received_ && is_reused_) {
      // The server closed a connection that lay idle, which HTTP allows at any time.
      is_reused_ = false;
      return Connect();
    }
    if (error && write_error_) return Fail("the server broke off: " + write_error_.message());
    if (error == http::error::end_of_stream || error == http::error::partial_message) {
      return Fail("the connection ended before the answer was complete");
    }
    if (error) return Fail(error.message());
    const bool keep = parser_->keep_alive() && !write_error_;
    if (!keep) Close();
    LoadRecord record = stream_->Finish();
    if (const unsigned status = parser_->get().result_int(); status != 200) {
      const std::string message = ErrorMessageOf(error_body_);
      record.success = false;
      record.error = fmt::format("HTTP {}{}{}", status, message.empty() ? "" : ": ", message);
    }
    run_.OnFinished(std::move(record), keep ? shared_from_this() : nullptr);
  }

  void Fail(std::string error) {
    Close();
    // What arrived before counts for nothing: the request has no end.
    run_.OnFinished({.index = index_, .start = start_, .error = std::move(error)}, nullptr);
  }

  void Close() {
    error_code ignored;
    socket_.close(ignored);
  }

  LoadRun& run_;
  tcp::socket socket_;
  beast::flat_buffer buffer_;
  std::optional<http::response_parser<SinkBody>> parser_;
  std::unique_ptr<CompletionStream> stream_;
  std::string request_;
  std::string error_body_;  // of an answer that is not 200
  error_code write_error_;
  size_t index_ = 0;
  double start_ = 0;
  bool is_reused_ = false;
  bool received_ = false;  // some of the answer's body
};

LoadOutcome LoadRun::Run() {
  signals_.add(SIGINT);
  signals_.async_wait([this](error_code error, int) {
    if (error) return;
    outcome_.interrupted = true;
    context_.stop();
  });
  begin_ = Clock::now();
  AwaitArrivals();
  AwaitProgress();
  if (!plan_.requests.empty()) context_.run();
  if (outcome_.interrupted) outcome_.duration = Now();
  std::sort(outcome_.records.begin(), outcome_.records.end(),
            [](const LoadRecord& a, const LoadRecord& b) { return a.index < b.index; });
  return std::move(outcome_);
}

void LoadRun::AwaitArrivals() {
  const auto& requests = plan_.requests;
  while (next_arrival_ < requests.size() && requests[next_arrival_].arrival <= Now()) {
    waiting_.push_back(next_arrival_++);
  }
  StartWaiting();
  if (next_arrival_ == requests.size()) return;
  arrival_timer_.expires_at(begin_ +
                            std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(requests[next_arrival_].arrival)));
  arrival_timer_.async_wait([this](error_code error) {
    if (!error) AwaitArrivals();
  });
}

void LoadRun::StartWaiting() {
  while (!waiting_.empty() && running_ < plan_.max_concurrency.value_or(UINT32_MAX)) {
    std::shared_ptr<Connection> connection;
    if (idle_.empty()) {
      connection = std::make_shared<Connection>(*this);
    } else {
      connection = std::move(idle_.back());
      idle_.pop_back();
    }
    ++running_;
    connection->Send(waiting_.front());
    waiting_.pop_front();
  }
}

void LoadRun::OnFinished(LoadRecord record, std::shared_ptr<Connection> connection) {
  --running_;
  record.queue = std::max(0.0, record.start - plan_.requests[record.index].arrival);
  outcome_.records.push_back(std::move(record));
  if (connection) idle_.push_back(std::move(connection));
  if (outcome_.records.size() == plan_.requests.size()) {
    outcome_.duration = Now();
    context_.stop();
    return;
  }
  StartWaiting();
}

void LoadRun::AwaitProgress() {
  progress_timer_.expires_after(kProgressPeriod);
  progress_timer_.async_wait([this](error_code error) {
    if (error) return;
    const double seconds = std::chrono::duration<double>(kProgressPeriod).count();
    progress_(
        {.finished = outcome_.records.size(),
         .running = running_,
         .token_chunks_per_second = static_cast<double>(chunks_ - reported_chunks_) / seconds});
    reported_chunks_ = chunks_;
    AwaitProgress();
  });
}

Result<tcp::resolver::results_type> Resolve(asio::io_context& context, const HttpTarget& target) {
  error_code error;
  auto endpoints = tcp::resolver(context).resolve(target.host, target.port, error);
  if (error) {
    return MakeError(ErrorCode::kNotFound, "{}: {}; is the host's name right? (--base-url, --host)",
                     target.host, error.message());
  }
  return endpoints;
}

}  // namespace

std::string HttpTarget::Url(const std::string& path) const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}{}{}", ipv6 ? "[" : "", host, ipv6 ? "]" : "", port, prefix,
                     path);
}

Result<HttpTarget> ParseBaseUrl(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) {
    return MakeError(ErrorCode::kUnimplemented,
                     "{}: no https here; measure beside the server, or put a proxy that ends TLS "
                     "before it",
                     url);
  }
  const Error malformed =
      InvalidArgument("'{}' is no base URL; write for example http://127.0.0.1:8000", url);
  if (!url.starts_with(kScheme)) return malformed;
  const std::string rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string authority = rest.substr(0, slash);
  HttpTarget target;
  target.prefix = rest.substr(slash);
  while (target.prefix.ends_with('/')) target.prefix.pop_back();
  // The last colon, unless it is within the brackets of an IPv6 address.
  const size_t colon = authority.rfind(':');
  if (colon != std::string::npos && authority.find(']', colon) == std::string::npos) {
    target.port = authority.substr(colon + 1);
    authority.resize(colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) {
    authority = authority.substr(1, authority.size() - 2);
  }
  target.host = authority;
  const bool is_number = !target.port.empty() && target.port.size() <= 5 &&
                         target.port.find_first_not_of("0123456789") == std::string::npos;
  if (target.host.empty() || !is_number || url.find_first_of(" \r\n@?#") != std::string::npos) {
    return malformed;
  }
  return target;
}

Result<HttpAnswer> HttpGet(const HttpTarget& target, const std::string& path) {
  asio::io_context context{1};
  MASU_ASSIGN_OR_RETURN(const auto endpoints, Resolve(context, target));
  const auto fail = [&](const error_code& error) {
    return MakeError(ErrorCode::kUnavailable,
                     "{}: {}; is a server running there? (--base-url, or --host and --port)",
                     target.Url(path), error.message());
  };
  tcp::socket socket(context);
  const std::string request = FormatHead(target, "GET", path) + "Connection: close\r\n\r\n";
  HttpAnswer answer;
  beast::flat_buffer buffer;
  http::response_parser<SinkBody> parser;
  parser.body_limit(boost::none);
  parser.get().body() = [&answer](std::string_view data) { answer.body += data; };
  // Asynchronous for the timeout, which blocking calls have not.
  error_code outcome = asio::error::timed_out;
  asio::async_connect(socket, endpoints, [&](error_code failed, const tcp::endpoint&) {
    if (failed) return void(outcome = failed);
    asio::async_write(socket, asio::buffer(request), [&](error_code unsent, size_t) {
      if (unsent) return void(outcome = unsent);
      http::async_read(socket, buffer, parser,
                       [&outcome](error_code unread, size_t) { outcome = unread; });
    });
  });
  context.run_for(kGetTimeout);
  if (outcome) return fail(outcome);
  answer.status = static_cast<int>(parser.get().result_int());
  return answer;
}

Result<LoadOutcome> RunLoad(const LoadPlan& plan,
                            const std::function<void(const LoadProgress&)>& progress) {
  RaiseFileLimit();
  asio::io_context context{1};
  MASU_ASSIGN_OR_RETURN(auto endpoints, Resolve(context, plan.target));
  return LoadRun(plan, std::move(endpoints), progress).Run();
}

}  // namespace masu
