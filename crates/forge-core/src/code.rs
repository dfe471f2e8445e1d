//! Every code that a user can meet: a stable identity, a title, a class, and the page that explains it.
//!
//! Codes are never reused or renumbered. The pages are `docs/errors/<code>.md`; a test proves that each exists, and
//! `forge lint --explain CODE` prints it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

/// What a finding, an error or the failure of a node means for whoever called: decides exit code, retry, metric label and
/// advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Class {
    /// Something that the user wrote is wrong.
    User,
    /// A rule of the installation forbids it.
    Policy,
    /// Somebody else changed it meanwhile.
    Conflict,
    /// Running again may help.
    Transient,
    /// It took too long.
    Timeout,
    /// The application itself is not well.
    Unhealthy,
    /// A node that it depends on failed.
    Blocked,
    /// The machine did not let us.
    Internal,
}

macro_rules! codes {
    ($($variant:ident $id:literal $class:ident $title:literal;)*) => {
        /// A stable code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $title] $variant,)*
        }

        impl Code {
            /// All codes, in the order of their identities.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable identity.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id,)* }
            }

            /// What it says in a few words.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// What it means for the caller.
            pub const fn class(self) -> Class {
                match self { $(Self::$variant => Class::$class,)* }
            }

            /// The page that explains it.
            pub const fn page(self) -> &'static str {
                match self {
                    $(Self::$variant => include_str!(concat!(env!("OUT_DIR"), "/", $id, ".md")),)*
                }
            }
        }
    };
}

codes! {
    MissingObject           "FORGE-A001" User     "an Argo CD object that the layout needs is missing";
    LayoutMismatch          "FORGE-A002" User     "an Argo CD object does not match the layout";
    Unprotected             "FORGE-A003" Policy   "a vanished file could destroy an environment";
    SyncWindowsInGit        "FORGE-A004" Policy   "sync windows in Git";
    AllowEmpty              "FORGE-A005" Policy   "automated sync may delete everything";
    ClusterUnready          "FORGE-B001" User     "the cluster is not ready for Forge";
    ClusterUnchecked        "FORGE-B002" Transient "a check of the cluster could not be made";
    KubernetesVersion       "FORGE-B003" User     "a version of Kubernetes that does not do";
    ClocksDiffer            "FORGE-B004" User     "clocks that differ too much";
    RightsMissing           "FORGE-B005" User     "rights that are missing";
    NoAdmissionPolicies     "FORGE-B006" User     "admission policies that are not served";
    NoUsableNode            "FORGE-B007" User     "no node for a pod";
    NoStorage               "FORGE-B008" User     "no volume for a claim";
    NamespaceGoing          "FORGE-B009" User     "a namespace that is being deleted";
    LimitsTooTight          "FORGE-B010" User     "quotas or limits that leave no room for a run";
    PodSecurity             "FORGE-B011" User     "pod security that could refuse pods of a run";
    ArgoNotAsSaid           "FORGE-B012" User     "an Argo that is not as forge.yaml says";
    ForeignDefinitions      "FORGE-B013" User     "definitions of Argo that cannot be used";
    ForeignWindows          "FORGE-B014" User     "sync windows that could stop a run";
    PodNotStarted           "FORGE-B015" User     "a pod that does not start";
    ImageNotPulled          "FORGE-B016" User     "an image that cannot be pulled";
    LeftBehind              "FORGE-B017" Transient "something that a check made is still there";
    HelmUnusable            "FORGE-B018" User     "a helm that cannot be used";
    ChartUnusable           "FORGE-B019" User     "a chart that cannot be used";
    InstallFailed           "FORGE-B020" Unhealthy "an installation of Argo failed";
    UpgradeFailed           "FORGE-B021" Unhealthy "an upgrade of Argo failed and was taken back";
    ReturnFailed            "FORGE-B022" Internal "an Argo that is neither what it was nor what it should be";
    BootstrapInProgress     "FORGE-B023" Conflict "another bootstrap is in progress";
    ForeignObject           "FORGE-B024" User     "an object with a name of Forge's own that is somebody else's";
    NotMerged               "FORGE-B025" User     "what the owner of Argo CD makes for Forge is not there";
    NotARepository          "FORGE-C001" User     "not a Forge repository";
    UnknownName             "FORGE-C002" User     "no such name";
    AmbiguousName           "FORGE-C003" User     "a name that fits several things";
    CannotWrite             "FORGE-C004" Internal "a file could not be written";
    NeedsCluster            "FORGE-C005" User     "this needs a cluster";
    Unusable                "FORGE-C006" User     "the repository cannot be used as it is";
    BadArgument             "FORGE-C007" User     "an argument that cannot be used";
    Unreachable             "FORGE-D001" Transient "the cluster does not answer";
    Forbidden               "FORGE-D002" Policy   "the account may not do this";
    NotBootstrapped         "FORGE-D003" User     "the cluster is not prepared for runs";
    RunInProgress           "FORGE-D004" Conflict "another run of this environment is in progress";
    ArgoUnreachable         "FORGE-D005" Transient "Argo CD does not answer";
    NotInGit                "FORGE-D006" User     "the checkout is not what Argo CD would read";
    RunBroken               "FORGE-D007" Internal "the record of a run cannot be used";
    NoRun                   "FORGE-D008" User     "no such run";
    WindowContested         "FORGE-D009" Conflict "somebody else takes the window away";
    NodeFailed              "FORGE-D010" Unhealthy "a node failed";
    ClusterRefused          "FORGE-D011" Internal "the cluster refused a request as wrong";
    RunNotBegun             "FORGE-D012" Timeout  "a run whose Job did not start";
    RunOverdue              "FORGE-D013" Timeout  "a run whose Job has no time left";
    ProtectedWithoutApproval "FORGE-E001" Policy  "a protected environment without approvals";
    AutoSyncOnProtected     "FORGE-E002" Policy   "automated sync on a protected environment";
    SharedPrefix            "FORGE-E003" User     "two environments of one cluster share their namespaces";
    DuplicateEnvironment    "FORGE-E004" User     "an environment listed twice";
    NobodyListens           "FORGE-E005" Policy   "an environment that no event would start";
    UnknownField            "FORGE-F001" User     "unknown field";
    MissingField            "FORGE-F002" User     "missing field";
    WrongType               "FORGE-F003" User     "value of the wrong type";
    InvalidValue            "FORGE-F004" User     "value that is not allowed";
    UnknownKind             "FORGE-F005" User     "unexpected apiVersion or kind";
    DocumentCount           "FORGE-F006" User     "wrong number of documents in a file";
    Cycle                   "FORGE-G001" User     "dependency cycle";
    UnknownDependency       "FORGE-G002" User     "dependency on something that is not in the graph";
    DuplicateNode           "FORGE-G003" User     "node or stack listed twice";
    SelfDependency          "FORGE-G004" User     "node that depends on itself";
    NodeWithoutPointer      "FORGE-G005" User     "node without a release pointer";
    PointerWithoutNode      "FORGE-G006" User     "release pointer that is not in the graph";
    LeftOut                 "FORGE-G007" User     "dependency that this environment leaves out";
    InvalidExpression       "FORGE-G008" User     "health expression that does not compile";
    UnknownOverride         "FORGE-G009" User     "override of something that is not in the graph";
    WorkflowTooLarge        "FORGE-G010" User     "graph too large for one workflow";
    ForgottenEdge           "FORGE-G011" Policy   "dependency that releases show and the graph does not have";
    ArgoHook                "FORGE-H001" Policy   "Argo CD hook around a sync";
    HelmHook                "FORGE-H002" Policy   "Helm hook";
    MutableTag              "FORGE-I001" Policy   "image that is not fixed by digest";
    SandboxNotRoot          "FORGE-K001" User     "the sandbox needs root";
    SandboxMachine          "FORGE-K002" User     "a machine that cannot run the sandbox";
    SandboxPackages         "FORGE-K003" User     "programs that the sandbox needs are missing";
    SandboxDiskFull         "FORGE-K004" Internal "not enough space for the sandbox";
    SandboxBusy             "FORGE-K005" Conflict "somebody else changes this sandbox";
    SandboxForeign          "FORGE-K006" User     "a folder that is not the folder of a sandbox";
    SandboxNoAddresses      "FORGE-K007" Conflict "no free addresses for the sandbox";
    SandboxBuild            "FORGE-K008" Internal "a part of the sandbox could not be built";
    SandboxUnwell           "FORGE-K009" Timeout  "a component of the sandbox does not serve";
    NoSandbox               "FORGE-K010" User     "no such sandbox";
    SandboxStep             "FORGE-K011" Internal "a step of the sandbox failed";
    SandboxChecksum         "FORGE-K012" Policy   "a source that is not what was pinned";
    SandboxMissing          "FORGE-K013" User     "the sandbox is not installed";
    SuppressionInvalid      "FORGE-L001" User     "suppression without a known code and a reason";
    SuppressionUnused       "FORGE-L002" User     "suppression that suppresses nothing";
    RootUnusable            "FORGE-M001" User     "a root file that cannot be applied";
    RootForeign             "FORGE-M002" User     "a root object that is somebody else's";
    OwnUnusable             "FORGE-M003" User     "an Application that cannot take Argo CD over";
    AdoptionRefused         "FORGE-M004" User     "an Argo CD that its own Application would change";
    AdoptionUnfinished      "FORGE-M005" Timeout  "an Argo CD that did not come to manage itself";
    ReleaseMissing          "FORGE-N001" User     "a release that is not there";
    ReleaseCorrupt          "FORGE-N002" User     "a release that is not what its digest says";
    ReleaseTooLarge         "FORGE-N003" User     "a release beyond a limit";
    ReleaseMalformed        "FORGE-N004" User     "something that is not a release as Forge reads it";
    ReleaseEmpty            "FORGE-N005" User     "a release without resources";
    NotSigned               "FORGE-N006" Policy   "a release without the signatures that are required";
    SignatureWrong          "FORGE-N007" Policy   "a signature that does not hold";
    ImageNotPinned          "FORGE-N008" User     "images in a release that are not fixed by digest";
    NotReproducible         "FORGE-N009" User     "a source that renders differently twice";
    RegistryRefused         "FORGE-N010" User     "a registry that refuses";
    RegistryUnavailable     "FORGE-N011" Transient "a registry that does not answer";
    RegistryLied            "FORGE-N012" Transient "a registry whose answer contradicts itself";
    RenderFailed            "FORGE-N013" User     "a source that does not render";
    BadSigningKey           "FORGE-N014" User     "a key that cannot be used";
    BadSignaturePolicy      "FORGE-N015" User     "a signature policy that cannot be used";
    ReleaseAmbiguous        "FORGE-N016" User     "a name that fits several releases";
    CannotCache             "FORGE-N017" Internal "a cache that cannot be used";
    PointerMismatch         "FORGE-N018" Policy   "a release that is not the one that was named";
    RegistryTimeout         "FORGE-N019" Timeout  "a registry that took too long";
    InventoryUnknown        "FORGE-O001" Transient "a part of the cluster that could not be listed";
    OrphansLeft             "FORGE-O002" Unhealthy "objects that a teardown left";
    SnapshotUnusable        "FORGE-O003" User     "a snapshot of phase 0 that cannot be used";
    ControllerGoesFirst     "FORGE-O004" User     "a controller that would go before what it clears";
    FinalizerWithoutOwner   "FORGE-O005" User     "a finalizer that nobody clears";
    ForeignInstances        "FORGE-O006" User     "objects of somebody else that would go along";
    WebhookWithoutService   "FORGE-O007" User     "a webhook that would outlive its service";
    ConversionWithoutService "FORGE-O008" User    "objects that would outlive who converts them";
    VolumeLeaks             "FORGE-O009" User     "a volume that would leak, or could not be removed";
    LoadBalancerLeaks       "FORGE-O010" User     "a load balancer that would leak, or never came";
    ApiServiceDown          "FORGE-O011" User     "a registered API that does not answer";
    AlreadyStuck            "FORGE-O012" User     "something that is stuck in its deletion";
    BadRelease              "FORGE-P001" User     "release that is not a full commit";
    BadDigest               "FORGE-P002" User     "release without a usable digest";
    IllegalFile             "FORGE-R001" User     "file that may not be in a project folder";
    MissingFile             "FORGE-R002" User     "missing file";
    NameCollision           "FORGE-R003" User     "two paths that give one name";
    NameTooLong             "FORGE-R004" User     "derived name over 63 characters";
    UnknownEnvironment      "FORGE-R005" User     "environment folder that forge.yaml does not list";
    WrongName               "FORGE-R006" User     "name that does not match the path";
    Placeholder             "FORGE-R007" User     "placeholder that was never filled in";
    OldEnvironmentConfig    "FORGE-R008" User     "EnvironmentConfig of a version that is no longer served";
    IllegalFolder           "FORGE-R009" User     "folder name that cannot become a Kubernetes name";
    UnusableHealthCheck     "FORGE-R010" User     "health check that Argo CD cannot use";
    SecretValue             "FORGE-S001" Policy   "Secret with values";
    Kubeconfig              "FORGE-S002" Policy   "kubeconfig with credentials";
    PrivateKey              "FORGE-S003" Policy   "private key";
    Token                   "FORGE-S004" Policy   "access token";
    Password                "FORGE-S005" Policy   "password";
    TokenContested          "FORGE-T001" Conflict "somebody else replaces the token of the Argo CD account";
    TokenUnusable           "FORGE-T002" User     "a token of Argo CD that can be neither used nor replaced";
    PasswordKept            "FORGE-T003" User     "the first password of Argo CD's administrator cannot be replaced";
    StillNeeded             "FORGE-U001" Policy   "something that stays depends on what is to be removed";
    MadeAgain               "FORGE-U002" Policy   "something that Forge does not stop would make it again";
    VolumesUnsecured        "FORGE-U003" Policy   "volumes that cannot be kept as asked";
    NotConfirmed            "FORGE-U004" User     "a teardown that nobody confirmed";
    NotReleasable           "FORGE-U005" User     "a finalizer that cannot be given up";
    RemovalStuck            "FORGE-U006" Timeout  "something that does not go";
    Unremovable             "FORGE-U007" Policy   "an Application that Argo CD could not remove";
    NodeMissing             "FORGE-V001" Unhealthy "an Application, or an object that it needs, is not there";
    NodeUnhealthy           "FORGE-V002" Unhealthy "an application that is not healthy";
    NodeOnItsWay            "FORGE-V003" Unhealthy "an application that is on its way";
    Drifted                 "FORGE-V004" Conflict "an application that is not what Git says";
    ComparisonOld           "FORGE-V005" Transient "a comparison that is too old to count";
    WrongDigest             "FORGE-V006" Conflict "a container that runs another image than it should";
    ExtraApplication        "FORGE-V007" User     "an Application that Git does not have";
    NotRead                 "FORGE-V008" Internal "something that could not be read";
    ControllerUnwell        "FORGE-V009" Unhealthy "a controller of the platform that is not well";
    WindowWrong             "FORGE-V010" Conflict "a sync window that is not as it must be";
    ObjectClaimed           "FORGE-V011" Conflict "an object that another Application claims";
    ConfigDiffers           "FORGE-V012" Conflict "an EnvironmentConfig that is not what Git says";
    WaveOutOfRange          "FORGE-W001" Policy   "sync wave outside -3 to 3";
    WaveBetweenApplications "FORGE-W002" Policy   "sync wave between Applications";
    InvalidInput            "FORGE-X001" User     "an input of the executor that cannot be used";
    MissingInput            "FORGE-X002" User     "an input of the executor that is missing";
    ContradictoryInput      "FORGE-X003" User     "inputs of the executor that contradict each other";
    RepositoryUnread        "FORGE-X005" Transient "the GitOps repository could not be read";
    NoSuchRevision          "FORGE-X006" User     "a revision that the GitOps repository does not have";
    YamlSyntax              "FORGE-Y001" User     "not valid YAML";
    DuplicateKey            "FORGE-Y002" User     "key that stands twice";
    Encoding                "FORGE-Y003" User     "file that is not UTF-8";
    TooLarge                "FORGE-Y004" User     "file beyond a limit";
    Symlink                 "FORGE-Y005" Policy   "symbolic link that cannot be followed";
    UnsupportedYaml         "FORGE-Y006" User     "YAML that our own files do not use";
    Unreadable              "FORGE-Y007" User     "file that cannot be read";
}

impl Code {
    /// True if a comment may allow it. What keeps files from being read, or the graph from being built, must be fixed:
    /// allowed or not, nothing could be done with such a repository.
    pub fn allowable(self) -> bool {
        self.class() == Class::Policy
            || matches!(
                self,
                Self::MissingObject
                    | Self::LayoutMismatch
                    | Self::PointerWithoutNode
                    | Self::SharedPrefix
                    | Self::UnknownEnvironment
                    | Self::Placeholder
            )
    }
}

/// A text that is no code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a code; codes look like `FORGE-G001`")]
pub struct UnknownCode(String);

impl FromStr for Code {
    type Err = UnknownCode;
    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        let wanted = text.to_ascii_uppercase();
        let full = |code: &&Self| code.id() == wanted || code.id().strip_prefix("FORGE-") == Some(wanted.as_str());
        Self::ALL.iter().find(full).copied().ok_or_else(|| UnknownCode(crate::name::clip(text)))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_order() {
        let ids: Vec<_> = Code::ALL.iter().map(|c| c.id()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    }

    #[test]
    fn every_page_names_its_code_and_title_and_says_what_to_do() {
        for code in Code::ALL {
            let page = code.page();
            let heading = format!("# {}: {}\n", code.id(), code.title());
            assert!(page.starts_with(&heading), "docs/errors/{}.md must start with {heading:?}", code.id());
            for section in ["## What it means", "## What to do", "## Example"] {
                assert!(page.contains(section), "docs/errors/{}.md lacks `{section}`", code.id());
            }
        }
    }

    #[test]
    fn a_code_is_found_in_any_case_and_without_its_prefix() {
        assert_eq!("g001".parse(), Ok(Code::Cycle));
        assert_eq!("FORGE-G001".parse(), Ok(Code::Cycle));
        assert!("G999".parse::<Code>().is_err());
    }
}
