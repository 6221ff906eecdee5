// Python's three ways of formatting: "%s" %, "{}".format(), and format specifications.
#include <algorithm>
#include <cmath>

#include "text/jinja_limits.h"
#include "text/jinja_operators.h"
#include "text/jinja_strings.h"

namespace masu::jinja {
namespace {

struct Specification {
  std::string fill = " ";
  char align = 0;  // < > ^ =, 0: the type's own
  char sign = '-';
  bool alternate = false;
  bool zero = false;  // fill with zeros: between sign and digits of a number
  size_t width = 0;
  char grouping = 0;
  std::optional<int> precision;
  char type = 0;
};

size_t ReadNumber(std::string_view text, size_t* at) {
  size_t value = 0;
  while (*at < text.size() && text[*at] >= '0' && text[*at] <= '9') {
    value = value * 10 + static_cast<size_t>(text[(*at)++] - '0');
    if (value > 10'000) Fail("a width or precision above 10000 is not supported");
  }
  return value;
}

bool IsAlign(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

Specification ParseSpecification(std::string_view text) {
  Specification spec;
  size_t at = 0;
  const size_t fill = text.empty() ? 0 : OffsetOfCharacter(text, 1);
  if (fill < text.size() && fill > 0 && IsAlign(text[fill])) {
    spec.fill = text.substr(0, fill);
    spec.align = text[fill];
    at = fill + 1;
  } else if (!text.empty() && IsAlign(text[0])) {
    spec.align = text[at++];
  }
  const auto one_of = [&](std::string_view set) {
    return at < text.size() && set.find(text[at]) != std::string_view::npos;
  };
  if (one_of("+- ")) spec.sign = text[at++];
  if (one_of("#")) spec.alternate = (++at, true);
  if (one_of("0")) {
    ++at;
    if (spec.align == 0) {
      spec.fill = "0";
      spec.zero = true;
    }
  }
  spec.width = ReadNumber(text, &at);
  if (one_of(",_")) spec.grouping = text[at++];
  if (one_of(".")) spec.precision = (++at, static_cast<int>(ReadNumber(text, &at)));
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) Fail("invalid format specifier '{}'", text);
  return spec;
}

std::string Grouped(std::string digits, char separator) {
  const size_t whole = std::min(digits.find_first_of(".e%"), digits.size());
  for (size_t at = whole; at > 3; at -= 3) digits.insert(at - 3, 1, separator);
  return digits;
}

std::string InBase(Integer magnitude, unsigned base, bool upper) {
  std::string digits;
  do {
    // A variable of its own: UBSan of g++ 12 misreads an index that is computed in 128 bits.
    const auto digit = static_cast<size_t>(magnitude % base);
    digits.push_back((upper ? "0123456789ABCDEF" : "0123456789abcdef")[digit]);
    magnitude /= base;
  } while (magnitude != 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string IntegerDigits(Integer magnitude, const Specification& spec) {
  if (spec.precision) Fail("precision not allowed in integer format specifier");
  switch (spec.type) {
    case 'x':
      return (spec.alternate ? "0x" : "") + InBase(magnitude, 16, false);
    case 'X':
      return (spec.alternate ? "0X" : "") + InBase(magnitude, 16, true);
    case 'o':
      return (spec.alternate ? "0o" : "") + InBase(magnitude, 8, false);
    case 'b':
      return (spec.alternate ? "0b" : "") + InBase(magnitude, 2, false);
    default:
      return InBase(magnitude, 10, false);
  }
}

std::string RealDigits(double magnitude, const Specification& spec) {
  const int precision = spec.precision.value_or(6);
  switch (spec.type) {
    case 'f':
    case 'F':
      return fmt::format("{:.{}f}", magnitude, precision);
    case 'e':
      return fmt::format("{:.{}e}", magnitude, precision);
    case 'E':
      return fmt::format("{:.{}E}", magnitude, precision);
    case 'g':
      return fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
    case 'G':
      return fmt::format("{:.{}G}", magnitude, std::max(precision, 1));
    case '%':
      return fmt::format("{:.{}f}%", magnitude * 100, precision);
    case 0:
      break;
    default:
      Fail("unknown format code '{}' for a float", spec.type);
  }
  if (!spec.precision) return FormatFloat(magnitude);
  std::string digits = fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
  if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
  return digits;
}

Text Aligned(const Text& prefix, const Text& body, const Specification& spec, char own_align) {
  const char align = spec.align != 0 ? spec.align : own_align;
  const Text fill = Text::Trusted(spec.fill);
  const auto width = static_cast<Integer>(spec.width);
  if (align == '=') {
    Text out = prefix;
    out.Append(Pad(body, width - static_cast<Integer>(prefix.size()), fill, Side::kRight));
    return out;
  }
  Text whole = prefix;
  whole.Append(body);
  if (align != '^') return Pad(whole, width, fill, align == '<' ? Side::kLeft : Side::kRight);
  // Unlike str.center(), the smaller half goes left.
  const auto missing = width - static_cast<Integer>(CountCharacters(whole.view()));
  if (missing <= 0) return whole;
  return Pad(Pad(whole, width - missing + missing / 2, fill, Side::kRight), width, fill,
             Side::kLeft);
}

Text FormatNumber(const Value& value, const Specification& spec) {
  constexpr std::string_view kRealTypes = "fFeEgG%";
  const bool real = value.IsFloat() || kRealTypes.find(spec.type) != std::string_view::npos;
  std::string sign = spec.sign == '-' ? "" : std::string(1, spec.sign);
  std::string digits;
  if (spec.type == 'c' || spec.type == 'n')
    Fail("the format code '{}' is not supported", spec.type);
  if (real && spec.type != 0) {
    const double number = value.AsDouble();
    if (std::signbit(number)) sign = "-";
    digits = RealDigits(std::abs(number), spec);
  } else if (real) {
    if (std::signbit(value.real())) sign = "-";
    digits = RealDigits(std::abs(value.real()), spec);
  } else {
    if (value.integer() < 0) sign = "-";
    digits = IntegerDigits(value.integer() < 0 ? -value.integer() : value.integer(), spec);
  }
  if (spec.grouping != 0) digits = Grouped(std::move(digits), spec.grouping);
  return Aligned(Text::Trusted(sign), Text::Trusted(digits), spec, spec.zero ? '=' : '>');
}

}  // namespace

Text FormatValue(const Value& value, std::string_view specification) {
  if (specification.empty()) return ToText(value);
  const Specification spec = ParseSpecification(specification);
  const bool as_number = value.IsNumber() && spec.type != 's';
  if (as_number) return FormatNumber(value, spec);
  if (!value.IsString()) Fail("unsupported format string passed to {}", value.TypeName());
  if (spec.grouping != 0) Fail("cannot specify '{}' with 's'", spec.grouping);
  if (spec.type != 0 && spec.type != 's') Fail("unknown format code '{}' for a string", spec.type);
  if (spec.align == '=') Fail("'=' alignment not allowed in string format specifier");
  Text text = value.text();
  if (spec.precision) {
    text = text.Substr(0, OffsetOfCharacter(text.view(), static_cast<size_t>(*spec.precision)));
  }
  return Aligned({}, text, spec, '<');
}

namespace {

// Fields are numbered by the format or by their order, not both.
struct Numbering {
  size_t next = 0;
  bool manual = false;
};

// "0.name[key]" in braces; the first part names an argument.
Value Field(std::string_view path, const Arguments& arguments, Numbering* numbering) {
  const size_t end = std::min(path.find_first_of(".["), path.size());
  const std::string_view first = path.substr(0, end);
  Value value;
  const bool number =
      std::all_of(first.begin(), first.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (number) {
    const bool mixed = first.empty() ? numbering->manual : numbering->next > 0;
    if (mixed) Fail("format(): cannot mix manual and automatic field numbering");
    size_t at = 0;
    numbering->manual |= !first.empty();
    const size_t index = first.empty() ? numbering->next++ : ReadNumber(first, &at);
    if (index >= arguments.positional.size()) {
      Fail("format(): there is no argument {} for the format", index);
    }
    value = arguments.positional[index];
  } else {
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& entry) { return entry.first == first; });
    if (found == arguments.named.end()) Fail("format(): there is no argument '{}'", first);
    value = found->second;
  }
  for (size_t at = end; at < path.size();) {
    const bool item = path[at] == '[';
    const size_t close =
        item ? path.find(']', at) : std::min(path.find_first_of(".[", at + 1), path.size());
    if (close == std::string_view::npos) Fail("format(): expected ']'");
    const std::string_view name = path.substr(at + 1, close - at - 1);
    size_t digits = 0;
    const bool index = item && !name.empty() && (ReadNumber(name, &digits), digits == name.size());
    digits = 0;
    value = index ? GetItem(value, Value::OfSize(ReadNumber(name, &digits)))
                  : (item ? GetItem(value, Value::OfTrusted(std::string(name)))
                          : GetAttribute(value, name));
    at = item ? close + 1 : close;
  }
  return value;
}

}  // namespace

Text FormatBraces(const Text& format, const Arguments& arguments) {
  const std::string_view bytes = format.view();
  Text out;
  Numbering numbering;
  for (size_t at = 0; at < bytes.size();) {
    const char c = bytes[at];
    if ((c == '{' || c == '}') && at + 1 < bytes.size() && bytes[at + 1] == c) {
      out.AppendRange(format, at, 1);
      at += 2;
      continue;
    }
    if (c == '}') Fail("format(): single '}}' in format string");
    if (c != '{') {
      const size_t next = std::min(bytes.find_first_of("{}", at), bytes.size());
      out.AppendRange(format, at, next - at);
      at = next;
      continue;
    }
    const size_t close = bytes.find('}', at);
    if (close == std::string_view::npos) Fail("format(): expected '}}' before end of string");
    std::string_view field = bytes.substr(at + 1, close - at - 1);
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string_view spec = colon < field.size() ? field.substr(colon + 1) : "";
    field = field.substr(0, colon);
    if (spec.find('{') != std::string_view::npos) Fail("format(): nested fields are not supported");
    const size_t bang = field.find('!');
    Value value = Field(field.substr(0, bang), arguments, &numbering);
    if (bang != std::string_view::npos) {
      value = Value::Of(field.substr(bang) == "!r" ? Repr(value) : ToText(value));
    }
    Text formatted = FormatValue(value, spec);
    // A field may name its fill character: whoever wrote the field may have written all of this.
    const bool trusted = format.Substr(at, close + 1 - at).AllTrusted();
    out.Append(trusted ? formatted : Text(formatted.str(), false));
    if (out.size() > kMaxTextBytes) Fail("a string exceeds {} bytes", kMaxTextBytes);
    at = close + 1;
  }
  out.set_markup(format.markup());
  return out;
}

Text FormatPercent(const Text& format, const Value& values) {
  const std::string_view bytes = format.view();
  const bool tuple = values.IsKind(List::Kind::kTuple);
  size_t next = 0;
  const auto take = [&]() -> Value {
    if (tuple && next < values.list().items.size()) return values.list().items[next++];
    if (!tuple && next == 0) return ++next, values;
    Fail("not enough arguments for format string");
  };
  Text out;
  for (size_t at = 0; at < bytes.size();) {
    const size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.AppendRange(format, at, percent - at);
    if (percent == bytes.size()) break;
    at = percent + 1;
    Value value;
    bool named = false;
    if (at < bytes.size() && bytes[at] == '(') {
      const size_t close = bytes.find(')', at);
      if (close == std::string_view::npos) Fail("incomplete format key");
      value = GetItem(values, Value::OfTrusted(std::string(bytes.substr(at + 1, close - at - 1))));
      RequireDefined(value);
      named = true;
      next = 1;
      at = close + 1;
    }
    const size_t type_at = bytes.find_first_not_of("-+ #0123456789.", at);
    if (type_at == std::string_view::npos) Fail("incomplete format");
    std::string spec(bytes.substr(at, type_at - at));
    const char type = bytes[type_at];
    at = type_at + 1;
    if (type == '%') {
      out.Append("%", format.TrustedAt(percent));
      continue;
    }
    if (!named) value = take();
    const bool left = spec.starts_with('-');
    if (left) spec.erase(0, 1);
    if (type == 's' || type == 'r') {
      value = Value::Of(type == 's' ? ToText(value) : Repr(value));
      out.Append(FormatValue(value, (left ? "<" : ">") + spec));
      continue;
    }
    if (!value.IsNumber()) Fail("%{} format: a number is required, not {}", type, value.TypeName());
    const bool integer = type == 'd' || type == 'i' || type == 'u';
    if (integer && value.IsFloat()) value = Value::Of(static_cast<Integer>(value.real()));
    out.Append(FormatValue(value, (left ? "<" : "") + spec + (integer ? 'd' : type)));
  }
  const size_t given = tuple ? values.list().items.size() : 1;
  // Python asks only values that cannot be indexed by a name or number.
  const bool indexable =
      values.IsDict() || values.IsKind(List::Kind::kList) || values.IsUndefined();
  if (next < given && !indexable) {
    Fail("not all arguments converted during string formatting");
  }
  out.set_markup(format.markup());
  return out;
}

}  // namespace masu::jinja
