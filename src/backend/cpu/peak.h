// How much arithmetic a core can do: what a roofline is drawn from. Not an operation of a model.
#pragma once

#include <cstdint>
#include <string_view>

namespace masu {

// A loop over registers alone, with numbers that are random and change all the time (multiplying
// zeros is faster on some CPUs). Adds up nothing that matters and returns a number that depends on
// all of it, so that no compiler leaves it out.
struct PeakLoop {
  std::string_view name;  // what is counted: "float32 FMA, 512 bits"
  float (*run)(uint64_t rounds) = nullptr;
  uint32_t operations = 0;  // of a round: a multiplication and an addition are two
};

// Of an instruction set that this CPU has (SupportedIsas(), backend/backend.h).
PeakLoop PeakLoopOf(std::string_view isa);

}  // namespace masu
