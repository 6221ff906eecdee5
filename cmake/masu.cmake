# Flags and the masu_layer() function.

add_library(masu_flags INTERFACE)
target_include_directories(masu_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_compile_definitions(masu_flags INTERFACE MASU_VERSION="${PROJECT_VERSION}")
# -ffp-contract=off: a fused multiply-add happens only where the source says so, since the order and
# the rounding of every sum is part of promise 3 (same request, same bits).
target_compile_options(masu_flags INTERFACE -Wall -Wextra -Werror -ffp-contract=off -fno-math-errno)
# g++ 12 reports impossible overlaps in std::string::insert and replace (GCC bug 105651).
target_compile_options(masu_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(MASU_SANITIZE)
  target_compile_options(masu_flags INTERFACE -fsanitize=${MASU_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(masu_flags INTERFACE -fsanitize=${MASU_SANITIZE})
  # Instrumented code makes g++ 12 see uninitialised members of moved-from variants (Result<T>).
  target_compile_options(masu_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  if(MASU_SANITIZE MATCHES "thread")
    # Asio's fences: ThreadSanitizer does not understand them, and its queues are under mutexes anyway.
    target_compile_definitions(masu_flags INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
    target_compile_options(masu_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
endif()
if(MASU_FUZZ)  # libFuzzer steers by the coverage of all code that it calls, so every layer is instrumented
  target_compile_options(masu_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

enable_testing()
if(MASU_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

# g++ 12 takes the deliberately undefined operand of masked AVX-512 intrinsics for a fault.
# Instruction sets live in folders of their own; only these files get more than the x86-64 baseline.
function(masu_isa_flags sources)
  foreach(source ${sources})
    if(source MATCHES "/cpu/avx2/")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    elseif(source MATCHES "/cpu/(avx512|avx512vbmi|avx512bf16|amx)/")
      set(more "")
      if(source MATCHES "/cpu/avx512vbmi/")
        set(more "-mavx512vnni;-mavx512vbmi;")
      elseif(source MATCHES "/cpu/avx512bf16/")
        set(more "-mavx512vbmi;-mavx512bf16;")
      elseif(source MATCHES "/cpu/amx/")
        set(more "-mavx512vbmi;-mavx512bf16;-mamx-tile;-mamx-bf16;")
      endif()
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;${more}-mprefer-vector-width=512;$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>;-Wno-uninitialized")
    endif()
  endforeach()
endfunction()

# masu_layer(NAME [DEPS other layers] [LIBS outside libraries]): library masu_NAME of src/NAME/**/*.cc and,
# where there are *_test.cc files, the test program NAME_test.
function(masu_layer name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS" ${ARGN})
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc)
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER all EXCLUDE REGEX "(_test|/cli/main)\\.cc$")
  list(TRANSFORM ARG_DEPS PREPEND masu_)
  if(all)
    add_library(masu_${name} STATIC ${all})
    target_link_libraries(masu_${name} PUBLIC masu_flags ${ARG_DEPS} ${ARG_LIBS})
    masu_isa_flags("${all}")
  else()
    add_library(masu_${name} INTERFACE)
    target_link_libraries(masu_${name} INTERFACE masu_flags ${ARG_DEPS} ${ARG_LIBS})
  endif()
  if(MASU_TESTS AND tests)
    add_executable(${name}_test ${tests})
    masu_isa_flags("${tests}")
    target_link_libraries(${name}_test PRIVATE masu_${name} masu_test_support GTest::gmock GTest::gtest_main)
    # One ctest entry per program: starting a process per case costs more than most cases.
    add_test(NAME ${name} COMMAND ${name}_test)
    set_tests_properties(${name} PROPERTIES WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  endif()
endfunction()
