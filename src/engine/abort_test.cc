// Aborts at any moment, from any thread: B308 and B310 of the bug reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/support/engine_harness.h"

namespace masu {
namespace {

constexpr uint32_t kVocab = 320;

const TemporaryModel& RandModel() {
  static const TemporaryModel model(MakeTinyRand({.layers = 1,
                                                  .hidden = 32,
                                                  .heads = 2,
                                                  .kv_heads = 1,
                                                  .head_dim = 16,
                                                  .ffn = 32,
                                                  .vocab = kVocab})
                                        .value());
  return model;
}

const TemporaryModel& LoopModel() {  // never ends
  static const TemporaryModel model(
      MakeTinyChain({.script = {"on ", "and", " so"}, .loop_to = 0, .vocab = 288}).value().gguf);
  return model;
}

// B308: a client goes away in the middle of an endless answer; seat and pages are free within a
// step.
TEST(Abort, FreesSeatAndPagesWithinAStep) {
  EngineConfig config = TinyConfig();
  config.max_num_seqs = 1;
  EngineRig rig(LoopModel(), config);
  const uint32_t context = rig->cache_info().max_model_len;
  for (int repeat = 0; repeat < 200; ++repeat) {
    const Ticket endless = rig.Submit(GreedyRequest({10, 11}, context - 10));
    const Ticket next = rig.Submit(GreedyRequest({12}, 4));
    while (endless.answer().tokens.size() < 3) ASSERT_TRUE(rig.Step());
    EXPECT_TRUE(next.answer().tokens.empty());
    EXPECT_GT(rig.stats().kv_pages_used, 0u);
    rig->Abort(endless.id);
    rig.Step();
    EXPECT_EQ(endless.answer().finish, FinishReason::kAbort);
    EXPECT_EQ(endless.answer().tokens.size(), 3u);
    EXPECT_LE(rig.stats().requests_running, 1u);
    while (next.answer().tokens.empty()) ASSERT_TRUE(rig.Step());
    ASSERT_TRUE(rig.Drain());
    EXPECT_EQ(next.answer().tokens.size(), 4u);
    EXPECT_EQ(endless.sink->faults(), "");
    rig.ExpectIdle();
  }
  EXPECT_EQ(rig.stats().requests_aborted, 200u);
  EXPECT_EQ(rig.stats().requests_finished, 200u);
}

TEST(Abort, WithoutAnyoneElsePagesAreFreeAfterOneStep) {
  EngineRig rig(LoopModel(), TinyConfig());
  const Ticket ticket = rig.Submit(GreedyRequest({10}, 1000));
  for (int i = 0; i < 5; ++i) rig.Step();
  ASSERT_GT(rig.stats().kv_pages_used, 0u);
  rig->Abort(ticket.id);
  rig.Step();
  rig.ExpectIdle();
}

TEST(Abort, IsIdempotentAndIgnoresUnknownIds) {
  EngineRig rig(LoopModel(), TinyConfig());
  rig->Abort(RequestId(0));
  rig->Abort(RequestId(1));  // the id that the first request may get
  rig->Abort(RequestId(~uint64_t{0}));
  rig.Step();
  const Ticket ticket = rig.Submit(GreedyRequest({10}, 5));
  ASSERT_TRUE(rig.Drain());
  EXPECT_EQ(ticket.answer().finish, FinishReason::kLength);
  rig->Abort(ticket.id);
  rig->Abort(ticket.id);
  rig.Drain();
  EXPECT_EQ(ticket.sink->faults(), "");
  EXPECT_EQ(rig.stats().requests_aborted, 0u);
  Request request = SeededRequest({10}, 50, 1);
  request.sampling.n = 3;
  const Ticket three = rig.Submit(request);
  rig.Step();
  rig->Abort(three.id);
  rig->Abort(three.id);
  ASSERT_TRUE(rig.Drain());
  for (uint32_t choice = 0; choice < 3; ++choice) {
    EXPECT_EQ(three.answer(choice).finish, FinishReason::kAbort);
  }
  EXPECT_EQ(three.sink->faults(), "");
  EXPECT_EQ(rig.stats().requests_aborted, 1u);
  rig.ExpectIdle();
}

TEST(Abort, BeforeTheFirstStep) {
  EngineRig rig(LoopModel(), TinyConfig());
  const Ticket ticket = rig.Submit(GreedyRequest({10}, 5));
  rig->Abort(ticket.id);
  ASSERT_TRUE(rig.Drain());
  EXPECT_EQ(ticket.answer().finish, FinishReason::kAbort);
  EXPECT_TRUE(ticket.answer().tokens.empty());
  rig.ExpectIdle();
}

TEST(Abort, FromTheSinkItself) {
  EngineRig rig(LoopModel(), TinyConfig());
  const auto abort_on = [&](size_t updates) {
    auto count = std::make_shared<size_t>(0);
    return [&rig, updates, count](RequestId id, const ChoiceUpdate&) {
      if (++*count == updates) rig->Abort(id);
    };
  };
  const Ticket first = rig.Submit(GreedyRequest({10}, 9), abort_on(1));
  const Ticket last = rig.Submit(GreedyRequest({11}, 9), abort_on(9));
  const Ticket never = rig.Submit(GreedyRequest({12}, 9));
  ASSERT_TRUE(rig.Drain());
  EXPECT_EQ(first.answer().finish, FinishReason::kAbort);
  EXPECT_EQ(first.answer().tokens.size(), 1u);
  EXPECT_EQ(last.answer().finish, FinishReason::kLength);  // it had finished already
  EXPECT_EQ(never.answer().tokens.size(), 9u);
  for (const Ticket& ticket : {first, last, never}) EXPECT_EQ(ticket.sink->faults(), "");
  rig.ExpectIdle();
}

TEST(StopChoice, EndsOneChoiceAndLeavesItsSiblings) {
  EngineRig rig(RandModel(), TinyConfig());
  Request request = SeededRequest(RandomPrompt(20, 1, kVocab), 30, 9);
  request.sampling.n = 3;
  const std::vector<Answer> expected = rig.Run({request});
  const Ticket ticket = rig.Submit(request, [&](RequestId id, const ChoiceUpdate& update) {
    if (update.choice == 1) rig->StopChoice(id, 1);  // at its first token
    if (update.choice == 2) rig->StopChoice(id, 7);  // there is no such choice
  });
  ASSERT_TRUE(rig.Drain());
  EXPECT_EQ(Difference(ticket.answer(0), expected[0]), "");
  EXPECT_EQ(Difference(ticket.answer(2), expected[2]), "");
  EXPECT_EQ(ticket.answer(1).tokens.size(), 1u);
  EXPECT_EQ(ticket.answer(1).finish, std::nullopt);  // no update follows
  EXPECT_EQ(ticket.sink->faults(), "");
  rig->StopChoice(ticket.id, 0);
  rig->StopChoice(RequestId(999), 0);
  rig.Drain();
  EXPECT_EQ(rig.stats().requests_finished, 2u);
  rig.ExpectIdle();
}

TEST(AbortAll, EndsEverything) {
  EngineConfig config = TinyConfig();
  config.max_num_seqs = 2;
  EngineRig rig(LoopModel(), config);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 5; ++i) tickets.push_back(rig.Submit(GreedyRequest({10}, 50)));
  for (int i = 0; i < 3; ++i) rig.Step();
  tickets.push_back(rig.Submit(GreedyRequest({10}, 50)));  // still in the inbox
  rig->AbortAll();
  for (const Ticket& ticket : tickets) {
    EXPECT_EQ(ticket.answer().finish, FinishReason::kAbort);
    EXPECT_EQ(ticket.sink->faults(), "");
  }
  rig.Step();
  rig.ExpectIdle();
}

TEST(EngineLoop, ItsEndAbortsWhatIsUnfinished) {
  EngineRig rig(LoopModel(), TinyConfig());
  Ticket ticket;
  {
    EngineLoop loop(rig.engine());
    ticket = rig.Submit(GreedyRequest({10}, rig->cache_info().max_model_len - 10));
    while (ticket.answer().tokens.empty()) ::usleep(1000);
  }
  EXPECT_TRUE(ticket.answer().finish.has_value());
}

// B310. Requests of a few kinds whose answers are known, aborted at random moments: before the
// first token, in the middle, at the end, twice, with ids that nobody has; in a pool that makes
// preemptions, with priorities. Whatever ends by itself is right; whatever was aborted is right as
// far as it came.
struct Storm {
  std::vector<Request> kinds;
  std::vector<Answer> expected;
  EngineConfig config;

  explicit Storm(SchedulingPolicy policy) {
    for (uint32_t i = 0; i < 12; ++i) {
      kinds.push_back(i % 2 == 0 ? GreedyRequest(RandomPrompt(1 + i * 3, i, kVocab), 5 + i * 2)
                                 : SeededRequest(RandomPrompt(1 + i * 3, i, kVocab), 40 - i, i));
      kinds.back().sampling.logprobs = 1;
      kinds.back().priority = static_cast<int32_t>(i % 3) - 1;
    }
    config = TinyConfig();
    config.max_num_seqs = 12;
    config.max_num_queued_reqs = 1000;
    config.max_model_len = 96;
    config.max_prefill_chunk = 16;
    config.scheduling_policy = policy;
    EngineRig rig(RandModel(), config);
    expected = rig.RunAlone(kinds);
  }

  // Counts how the request ended.
  void Check(const Ticket& ticket, size_t kind, uint64_t* survivors, uint64_t* aborted) const {
    const Answer answer = ticket.answer();
    ASSERT_EQ(ticket.sink->faults(), "");
    ASSERT_TRUE(answer.finish.has_value());
    if (answer.finish == FinishReason::kAbort) {
      ++*aborted;
      ASSERT_LE(answer.tokens.size(), expected[kind].tokens.size());
      for (size_t i = 0; i < answer.tokens.size(); ++i) {
        ASSERT_TRUE(SameBits(answer.tokens[i], expected[kind].tokens[i]));
      }
    } else {
      ++*survivors;
      ASSERT_EQ(Difference(answer, expected[kind]), "");
    }
  }

  void Run(uint64_t total_aborts, uint32_t seed) const {
    EngineRig rig(RandModel(), config, 14);
    std::mt19937 random(seed);
    struct Live {
      Ticket ticket;
      size_t kind;
    };
    std::vector<Live> live;
    std::vector<RequestId> gone;
    uint64_t aborts = 0, submitted = 0, survivors = 0, aborted = 0, at_end = 0;
    while (aborts < total_aborts || !live.empty()) {
      for (uint32_t i = random() % 4; i > 0 && live.size() < 64 && aborts < total_aborts; --i) {
        const size_t kind = random() % kinds.size();
        const uint32_t fate = random() % 8;
        RecordingSink::Hook hook;
        if (fate == 0) {  // exactly at its end
          hook = [&rig, &aborts, &at_end](RequestId id, const ChoiceUpdate& update) {
            if (!update.finish) return;
            rig->Abort(id);
            ++aborts;
            ++at_end;
          };
        }
        live.push_back({rig.Submit(kinds[kind], hook), kind});
        ++submitted;
        if (fate == 1) {  // before its first token
          rig->Abort(live.back().ticket.id);
          ++aborts;
        }
      }
      if (!live.empty() && random() % 2 == 0 && aborts < total_aborts) {
        const RequestId id = live[random() % live.size()].ticket.id;
        rig->Abort(id);
        ++aborts;
        if (random() % 4 == 0) {  // twice
          rig->Abort(id);
          ++aborts;
        }
      }
      if (!gone.empty() && random() % 8 == 0) {
        rig->Abort(random() % 2 == 0 ? gone[random() % gone.size()] : RequestId(random()));
        ++aborts;
      }
      rig.Step();
      for (size_t i = 0; i < live.size();) {
        if (!live[i].ticket.finished()) {
          ++i;
          continue;
        }
        ASSERT_NO_FATAL_FAILURE(Check(live[i].ticket, live[i].kind, &survivors, &aborted));
        gone.push_back(live[i].ticket.id);
        live[i] = std::move(live.back());
        live.pop_back();
      }
    }
    ASSERT_TRUE(rig.Drain());
    const EngineStats stats = rig.stats();
    EXPECT_EQ(stats.requests_received, submitted);
    EXPECT_EQ(stats.requests_finished, survivors);
    EXPECT_EQ(stats.requests_aborted, aborted);
    EXPECT_EQ(stats.requests_failed, 0u);
    EXPECT_GE(aborts, total_aborts);
    EXPECT_GT(survivors, submitted / 50);
    EXPECT_GT(aborted, submitted / 10);
    EXPECT_GT(at_end, 0u);
    EXPECT_GT(stats.preemptions, 0u);
    rig.ExpectIdle();
  }
};

TEST(AbortStorm, TenThousandFcfs) { Storm(SchedulingPolicy::kFcfs).Run(10000, 1); }
TEST(AbortStorm, TenThousandWithPriorities) { Storm(SchedulingPolicy::kPriority).Run(10000, 2); }
TEST(AbortStorm, DISABLED_SoakOneHundredThousand) {
  Storm(SchedulingPolicy::kFcfs).Run(100000, 3);
  Storm(SchedulingPolicy::kPriority).Run(100000, 4);
}

// The same from several threads beside the engine's own.
TEST(AbortStorm, FromManyThreads) {
  const Storm storm(SchedulingPolicy::kPriority);
  EngineRig rig(RandModel(), storm.config, 14);
  std::atomic<uint64_t> submitted = 0;
  std::atomic<uint64_t> aborted = 0;
  std::atomic<uint64_t> survivors = 0;
  {
    EngineLoop loop(rig.engine());
    std::vector<std::thread> clients;
    for (uint32_t c = 0; c < 4; ++c) {
      clients.emplace_back([&, c] {
        std::mt19937 random(c);
        uint64_t mine_aborted = 0;
        uint64_t mine_survived = 0;
        for (int round = 0; round < 40; ++round) {
          std::vector<std::pair<Ticket, size_t>> tickets;
          for (int i = 0; i < 8; ++i) {
            const size_t kind = random() % storm.kinds.size();
            auto submit = rig.TrySubmit(storm.kinds[kind]);
            ASSERT_TRUE(submit.ok());
            tickets.emplace_back(submit.value(), kind);
            ++submitted;
            if (random() % 2 == 0) rig->Abort(tickets[random() % tickets.size()].first.id);
          }
          (void)rig.stats();
          (void)rig->Explain();
          for (auto& [ticket, kind] : tickets) {
            if (random() % 3 == 0) rig->Abort(ticket.id);
            for (int wait = 0; !ticket.finished() && wait < 30000; ++wait) ::usleep(200);
            ASSERT_TRUE(ticket.finished());
            storm.Check(ticket, kind, &mine_survived, &mine_aborted);
          }
        }
        aborted += mine_aborted;
        survivors += mine_survived;
      });
    }
    for (std::thread& client : clients) client.join();
  }
  rig.Step();
  const EngineStats stats = rig.stats();
  EXPECT_EQ(stats.requests_received, submitted.load());
  EXPECT_EQ(stats.requests_finished, survivors.load());
  EXPECT_EQ(stats.requests_aborted, aborted.load());
  EXPECT_GT(survivors.load(), 0u);
  EXPECT_GT(aborted.load(), 0u);
  rig.ExpectIdle();
}

}  // namespace
}  // namespace masu
