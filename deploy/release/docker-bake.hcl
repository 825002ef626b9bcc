# Every image of a release, for several processors, each with the list of what it is made of and how it was made. `make publish` runs it:
#
#   REGISTRY=registry.example.com/ VERSION=1.2.3 docker buildx bake --file deploy/release/docker-bake.hcl --print

variable "REGISTRY" {
  # With a slash at the end. Without one the names would be those of a public hub's user.
  default = ""
  validation {
    condition     = can(regex("^[^/]+.*/$", REGISTRY))
    error_message = "REGISTRY is the registry that you push to, with a slash at the end: registry.example.com/"
  }
}
# As `image.prefix` of the chart.
variable "PREFIX" { default = "ensemble/" }
variable "VERSION" {
  default = ""
  validation {
    condition     = can(regex("^[0-9]+\\.[0-9]+\\.[0-9]+(-[0-9A-Za-z.-]+)?$", VERSION))
    error_message = "VERSION is a version of three numbers, as in 1.2.3 or 1.2.3-rc.1"
  }
}
variable "REVISION" { default = "unknown" }
# The seconds since 1970 that files in the images are dated with, so that two builds of one commit have the same layers.
variable "SOURCE_DATE_EPOCH" { default = "0" }
variable "PLATFORMS" { default = "linux/amd64,linux/arm64" }

group "default" {
  targets = ["service", "voice-agent", "backup"]
}

target "release" {
  platforms = split(",", PLATFORMS)
  attest    = ["type=sbom", "type=provenance,mode=max"]
  args      = { VERSION = VERSION, REVISION = REVISION, SOURCE_DATE_EPOCH = SOURCE_DATE_EPOCH }
  labels = {
    "org.opencontainers.image.version"  = VERSION
    "org.opencontainers.image.revision" = REVISION
  }
}

target "service" {
  inherits   = ["release"]
  name       = service
  matrix     = { service = ["edge-proxy", "identity", "machine-registry", "session-store", "orchestrator", "voice-gateway", "runner", "ensemble"] }
  context    = "."
  dockerfile = "deploy/docker/Dockerfile"
  target     = service
  tags       = ["${REGISTRY}${PREFIX}${service}:${VERSION}"]
}

target "voice-agent" {
  inherits = ["release"]
  context  = "deploy/voice-agent"
  # With the providers of models; an agent without them only gives everything back.
  args = { REQUIREMENTS = "requirements-models.txt" }
  tags = ["${REGISTRY}${PREFIX}voice-agent:${VERSION}"]
}

target "backup" {
  inherits = ["release"]
  context  = "deploy/backup"
  tags     = ["${REGISTRY}${PREFIX}backup:${VERSION}"]
}
